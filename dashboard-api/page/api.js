// Client of the JSON API. Its types come from the OpenAPI document: ./test generates `dashboard-api.d.ts` next to a copy of
// this file and type-checks the page.

/** @typedef {import("./dashboard-api").paths} Paths */
/** @typedef {import("./dashboard-api").components["schemas"]} Schemas */
/** @typedef {Schemas["KeyWithPause"]} Key */
/** @typedef {Schemas["UnreadableKey"]} UnreadableKey */
/** @typedef {Schemas["Account"]} Account */
/** @typedef {Schemas["Settings"]} Settings */
/** @typedef {Schemas["DayUsage"]} DayUsage */
/** @typedef {Schemas["Event"]} KeyEvent */
/** @typedef {Schemas["Scope"]} Scope */

/** @typedef {"get" | "post" | "put" | "patch" | "delete"} AnyMethod */
/**
 * Methods of a path.
 * @template {keyof Paths} P
 * @typedef {{[M in AnyMethod]: Paths[P][M] extends {responses: object} ? M : never}[AnyMethod]} MethodOf
 */
/**
 * Response body of an operation.
 * @template O
 * @typedef {O extends {responses: {200: {content: {[type: string]: infer T}}}} ? T
 *   : O extends {responses: {201: {content: {[type: string]: infer T}}}} ? T : void} ResponseOf
 */
/**
 * Arguments of an operation: the ID in its path, its query and the request body, where it has them.
 * @template O
 * @typedef {{query?: Record<string, string | undefined>} & (O extends {parameters: {path: {id: string}}} ? {id: string} : {id?: undefined})
 *   & (O extends {requestBody: {content: {[type: string]: infer T}}} ? {body: T} : {body?: undefined})} ArgumentsOf
 */

/** An error response, or no response at all. */
export class ApiError extends Error {
  /**
   * @param {number} status 0 if there was no response
   * @param {string} code
   * @param {string} message
   * @param {string | null} [requestId] of a failure of the service, which its log explains
   */
  constructor(status, code, message, requestId = null) {
    super(message);
    this.status = status;
    this.code = code;
    this.requestId = requestId;
  }
}

/**
 * Calls an operation.
 * @template {keyof Paths} P
 * @template {MethodOf<P>} M
 * @param {M} method
 * @param {P} path
 * @param {ArgumentsOf<Paths[P][M]>} args
 * @returns {Promise<ResponseOf<Paths[P][M]>>}
 */
export async function call(method, path, args) {
  const query = new URLSearchParams(Object.entries(args.query ?? {}).flatMap(([name, value]) => (value === undefined ? [] : [[name, value]])));
  const { response, text } = await send(method, `${String(path).replace("{id}", args.id ?? "")}${query.size ? `?${query}` : ""}`, args.body);
  const requestId = response.status >= 500 ? response.headers.get("X-Request-Id") : null;
  /** @type {any} */
  let body;
  try {
    body = text ? JSON.parse(text) : undefined;
  } catch {
    throw new ApiError(response.status, "unreadable", "Unexpected response. A proxy may be interfering. Reload the page.", requestId);
  }
  if (response.ok) return body;
  const error = new ApiError(response.status, body?.error ?? "", body?.message ?? "Something went wrong.", requestId);
  if (error.code === "unauthenticated") window.dispatchEvent(new CustomEvent("session-ended"));
  throw error;
}

/**
 * Sends a request and reads the whole response.
 * @param {string} method
 * @param {string} path
 * @param {unknown} body
 */
async function send(method, path, body) {
  /** @type {Record<string, string>} */
  const headers = method === "get" ? {} : { "X-CSRF-Token": "1" };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const request = { method: method.toUpperCase(), headers, body: body === undefined ? undefined : JSON.stringify(body) };
  try {
    const response = await fetch(path, { ...request, signal: AbortSignal.timeout(20_000) });
    // Inside of the try block, because the connection can also break or time out after the headers.
    return { response, text: await response.text() };
  } catch {
    throw new ApiError(0, "offline", "Can't reach the service. Check your connection.");
  }
}

/**
 * Message to show for anything that was thrown.
 * @param {unknown} error
 * @param {string} [advice] follows the message
 */
export function errorMessage(error, advice = "") {
  const message = error instanceof ApiError ? error.message : "Something went wrong on this page. Reload it.";
  const requestId = error instanceof ApiError && error.requestId ? `Request ID: ${error.requestId}` : "";
  return [message, advice, requestId].filter(Boolean).join(" ");
}
