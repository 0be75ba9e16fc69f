// The JSON API, typed by its OpenAPI document: ./test generates `dashboard-api.d.ts` beside this file and checks.

/** @typedef {import("./dashboard-api").paths} Paths */
/** @typedef {import("./dashboard-api").components["schemas"]} Schemas */
/** @typedef {Schemas["Key"]} Key */
/** @typedef {Schemas["Account"]} Account */
/** @typedef {Schemas["Settings"]} Settings */
/** @typedef {Schemas["DayUsage"]} DayUsage */
/** @typedef {Schemas["Event"]} KeyEvent */
/** @typedef {Schemas["Scope"]} Scope */

/** @typedef {"get" | "post" | "put" | "delete"} AnyMethod */
/**
 * The methods that a path takes.
 * @template {keyof Paths} P
 * @typedef {{[M in AnyMethod]: Paths[P][M] extends {responses: object} ? M : never}[AnyMethod]} MethodOf
 */
/**
 * What an operation answers.
 * @template O
 * @typedef {O extends {responses: {200: {content: {[type: string]: infer T}}}} ? T
 *   : O extends {responses: {201: {content: {[type: string]: infer T}}}} ? T : void} AnswerOf
 */
/**
 * What an operation takes beside the session: the key's id, a body.
 * @template O
 * @typedef {(O extends {parameters: {path: {id: string}}} ? {id: string} : {id?: undefined})
 *   & (O extends {requestBody: {content: {[type: string]: infer T}}} ? {body: T} : {body?: undefined})} GivenTo
 */

/** An answer that is an error. */
export class ApiError extends Error {
  /**
   * @param {number} status 0 where there was no answer at all
   * @param {string} code
   * @param {string} message
   */
  constructor(status, code, message) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

/**
 * Calls an operation.
 * @template {keyof Paths} P
 * @template {MethodOf<P>} M
 * @param {M} method
 * @param {P} path
 * @param {GivenTo<Paths[P][M]>} given
 * @returns {Promise<AnswerOf<Paths[P][M]>>}
 */
export async function call(method, path, given) {
  const response = await send(method, String(path).replace("{id}", given.id ?? ""), given.body);
  const text = await response.text();
  /** @type {any} */
  let answer;
  try {
    answer = text ? JSON.parse(text) : undefined;
  } catch {
    throw new ApiError(response.status, "unreadable", "The answer can't be understood. Is something between us?");
  }
  if (response.ok) return answer;
  const error = new ApiError(response.status, answer?.error ?? "", answer?.message ?? "Something went wrong.");
  if (error.code === "unauthenticated") window.dispatchEvent(new CustomEvent("session-ended"));
  throw error;
}

/**
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
    return await fetch(path, { ...request, signal: AbortSignal.timeout(15_000) });
  } catch {
    throw new ApiError(0, "offline", "The service can't be reached. Check your connection.");
  }
}

/**
 * What to tell a person about anything that was thrown.
 * @param {unknown} error
 */
export function told(error) {
  return error instanceof ApiError ? error.message : "Something went wrong on this page. Reload it, please.";
}
