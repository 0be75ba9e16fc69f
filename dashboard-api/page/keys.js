// The keys of the account: the list or, at #/keys/ID, the page of one key. They refresh automatically while the page is
// visible.
import { ApiError, call, errorMessage } from "./api.js";
import { closeAll } from "./dialogs.js";
import { announce, focusMain, h, setText } from "./dom.js";
import { isUsedUp } from "./chart.js";
import { keyPage, unreadablePage } from "./key.js";
import { keyList } from "./list.js";
import { createKey } from "./create.js";
import { refreshTimes, today } from "./format.js";

/** @typedef {import("./api.js").Key} Key */
/** @typedef {import("./api.js").DayUsage} DayUsage */

const REFRESH_MS = 3_000;
/** Maximum delay after failed refreshes. Each failure doubles the delay, from REFRESH_MS up to this. */
const MAX_RETRY_MS = 30_000;
const USAGE_REFRESH_MS = 60_000;

/** ID of the key whose page is open, if it is one. */
export const openKey = () => /^#\/keys\/([0-9a-f]{32})$/.exec(location.hash)?.[1];

/**
 * @param {import("./api.js").Settings} settings
 * @returns {{element: HTMLElement, stop: () => void}}
 */
export function keysView(settings) {
  /** Usage by key ID. `days` is null until a request has succeeded. @type {Map<string, {days: DayUsage[] | null, attemptedAt: number}>} */
  const usage = new Map();
  /** Requests of a day by key ID. Deleted keys stay, so that the sum does not fall. @type {{day: string, requests: Map<string, number>}} */
  let counted = { day: "", requests: new Map() };
  /** Keys as shown last; null if none were loaded yet. @type {import("./list.js").Keys | null} */
  let shown = null;
  /** The page of the open key; `name` says of which and in which form. @type {(import("./key.js").KeyPage & {id: string, name: string}) | null} */
  let page = null;
  // Numbers of the refresh that was started last, and of the one that is shown (0: none has succeeded yet).
  let latestSequence = 0;
  let shownSequence = 0;
  let inFlight = 0;
  /** Refreshes that have failed since the last success or manual retry. */
  let failures = 0;
  /** Message of the error that is shown, without its request ID, which differs in each response. @type {string | null} */
  let shownError = null;
  let stopped = false;
  let timer = 0;

  const warning = h("p", { class: "warning", role: "status" });
  const list = keyList(settings, () => createKey(refresh, (id) => {
    const link = list.linkOf(id);
    if (link?.isConnected) link.focus();
    else focusMain();
  }), retry);
  const element = h("main", { class: "keys" }, warning, list.element);
  document.title = "API keys · IP Lookup";

  async function refresh() {
    const sequence = ++latestSequence;
    inFlight++;
    clearTimeout(timer);
    try {
      const keys = await call("get", "/api/v1/keys", {});
      // A slower response of an earlier refresh would show an earlier state again.
      if (stopped || sequence < shownSequence) return;
      shownSequence = sequence;
      failures = 0;
      shownError = null;
      setText(warning, "");
      announceChanges(keys.keys);
      count(keys.keys);
      shown = keys;
      show();
      if (await loadUsage(keys.keys) && !stopped && sequence === shownSequence) show();
    } catch (error) {
      // The failure of an earlier refresh does not matter once a later one was started.
      const isLatest = !stopped && sequence === latestSequence;
      if (isLatest && !(error instanceof ApiError && error.code === "unauthenticated")) {
        showError(error);
        failures++;
      }
    } finally {
      inFlight--;
      // The next refresh is scheduled after the last response, so slow responses can't pile up requests.
      if (!inFlight) schedule();
    }
  }

  /** Schedules the next refresh. While the page is hidden, it is postponed. */
  function schedule() {
    clearTimeout(timer);
    if (stopped) return;
    const delay = Math.min(REFRESH_MS * 2 ** Math.max(failures - 1, 0), MAX_RETRY_MS);
    timer = setTimeout(() => (document.visibilityState === "visible" ? refresh() : schedule()), delay);
  }

  /** Retries on request of the user, who is told the result even if it is the same as before. */
  function retry() {
    failures = 0;
    shownError = null;
    refresh();
  }

  /**
   * Loads the usage that is outdated. Where that fails, the previous usage stays until the next attempt.
   * @param {Key[]} keys
   * @returns {Promise<boolean>} whether there was something to load
   */
  async function loadUsage(keys) {
    const outdated = keys.filter((key) => Date.now() - (usage.get(key.id)?.attemptedAt ?? 0) > USAGE_REFRESH_MS);
    const results = await Promise.allSettled(outdated.map((key) => call("get", "/api/v1/keys/{id}/usage", { id: key.id })));
    results.forEach((result, i) => {
      const { id } = outdated[i];
      const days = result.status === "fulfilled" ? result.value.days : usage.get(id)?.days ?? null;
      usage.set(id, { days, attemptedAt: Date.now() });
    });
    return outdated.length > 0;
  }

  /**
   * Shows why the last refresh failed. While its cause is the same, nothing changes, because screen readers would read the
   * message again after each attempt.
   * @param {unknown} error
   */
  function showError(error) {
    const cause = error instanceof Error ? error.message : String(error);
    if (cause === shownError) return;
    shownError = cause;
    if (shown) {
      setText(warning, errorMessage(error, "Showing the last known numbers. Retrying automatically."));
    } else {
      list.showError(errorMessage(error));
      announce(`Can't load your keys. ${errorMessage(error)}`);
    }
  }

  /** @param {Key[]} keys */
  function count(keys) {
    if (counted.day !== today()) counted = { day: today(), requests: new Map() };
    for (const key of keys) counted.requests.set(key.id, key.used_today);
    for (const id of usage.keys()) if (!keys.some((key) => key.id === id)) usage.delete(id);
  }

  /** Shows what the address names: the list or a key. */
  function show() {
    if (!shown) return;
    const id = openKey();
    list.update(shown, (id) => usage.get(id)?.days, [...counted.requests.values()].reduce((sum, requests) => sum + requests, 0));
    const content = id ? showKey(id, shown) : list.element;
    document.title = `${content.querySelector("h1")?.textContent} · IP Lookup`;
    const before = element.lastElementChild;
    if (content !== before) {
      const hadFocus = element.contains(document.activeElement) || document.activeElement === document.body;
      before?.replaceWith(content);
      const target = (!id && page && list.linkOf(page.id)) || content.querySelector("h1");
      if (hadFocus) target?.focus();
    }
    if (!id) page = null;
    refreshTimes(element);
  }

  /**
   * Updates the page of a key, which is created first if another one was open.
   * @param {string} id
   * @param {import("./list.js").Keys} keys
   */
  function showKey(id, { keys, unreadable = [] }) {
    const [key, damaged] = [keys.find((key) => key.id === id), unreadable.find((key) => key.id === id)];
    const name = `${id} ${key ? "readable" : damaged ? "unreadable" : "missing"}`;
    if (page?.name !== name) {
      const created = key ? keyPage(key, settings.lookup_url, refresh) : damaged ? unreadablePage(damaged, refresh) : missingPage();
      page = { ...created, id, name };
    }
    if (key) page.update(key, usage.get(id)?.days);
    return page.element;
  }

  /**
   * Tells screen readers about keys that were paused or reached their daily limit since the last refresh.
   * @param {Key[]} keys
   */
  function announceChanges(keys) {
    const changes = keys.flatMap((key) => {
      const before = shown?.keys.find((other) => other.id === key.id);
      if (!before) return [];
      if (key.pause && !before.pause) return [`Key ${key.name} is paused: ${key.pause.reason}.`];
      if (isUsedUp(key) && !isUsedUp(before)) return [`Key ${key.name} has reached its daily limit.`];
      return [];
    });
    if (changes.length) announce(changes.join(" "));
  }

  const onVisibilityChange = () => document.visibilityState === "visible" && refresh();
  const onHashChange = () => {
    closeAll();
    show();
  };
  document.addEventListener("visibilitychange", onVisibilityChange);
  window.addEventListener("hashchange", onHashChange);
  refresh();
  return {
    element,
    stop: () => {
      stopped = true;
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", onVisibilityChange);
      window.removeEventListener("hashchange", onHashChange);
    },
  };
}

/** The page for an ID that is not among the keys. */
function missingPage() {
  const element = h("div", { class: "empty" }, h("h1", { tabindex: -1 }, "Key not found"),
    h("p", null, "It was deleted, or belongs to another account."), h("a", { href: "#/" }, "All keys"));
  return { element, update: () => {} };
}
