// The list of keys. It refreshes automatically while the page is visible.
import { ApiError, call, errorMessage } from "./api.js";
import { announce, button, focusMain, h, icon, setAttribute, setText } from "./dom.js";
import { isUsedUp } from "./chart.js";
import { keyCard, unreadableCard } from "./card.js";
import { createKey } from "./create.js";
import { number, refreshTimes } from "./format.js";

/** @typedef {import("./api.js").Key} Key */
/** @typedef {import("./api.js").UnreadableKey} UnreadableKey */
/** @typedef {import("./api.js").DayUsage} DayUsage */

const REFRESH_MS = 3_000;
/** Maximum delay after failed refreshes. Each failure doubles the delay, from REFRESH_MS up to this. */
const MAX_RETRY_MS = 30_000;
const USAGE_REFRESH_MS = 60_000;

/**
 * @param {import("./api.js").Settings} settings
 * @param {string} [linkedKey] ID of the key to focus first
 * @returns {{element: HTMLElement, stop: () => void}}
 */
export function keysView(settings, linkedKey) {
  /** Usage by key ID. `days` is null until a request has succeeded. @type {Map<string, {days: DayUsage[] | null, attemptedAt: number}>} */
  const usage = new Map();
  /** @type {Map<string, import("./card.js").Card<Key>>} */
  const cards = new Map();
  /** @type {Map<string, import("./card.js").Card<UnreadableKey>>} */
  const unreadableCards = new Map();
  /** Keys as shown last, by ID. @type {Map<string, Key>} */
  let shown = new Map();
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

  const keyCount = h("p", { class: "key-count" }, "Loading your keys…");
  const create = () => createKey(refresh, focusCard);
  const createButton = button("Create key", { class: "primary", icon: "plus", onclick: create });
  const warning = h("p", { class: "warning", role: "status" });
  const totals = totalsOf();
  const list = h("div", { class: "cards", "aria-busy": "true" }, h("div", { class: "card skeleton" }), h("div", { class: "card skeleton" }));
  const element = h("main", { class: "keys" },
    h("div", { class: "title" }, h("div", null, h("h1", { tabindex: -1 }, "API keys"), keyCount), createButton), warning, totals.element, list);
  const loadError = h("p");
  const loadFailed = emptyState("alert", "Can't load your keys", loadError, button("Try again", { class: "primary", onclick: retry }));
  const firstKey = emptyState("key", "No keys yet", h("p", null, "Create a key and make your first request with curl."),
    button("Create your first key", { class: "primary", icon: "plus", onclick: create }));

  async function refresh() {
    const sequence = ++latestSequence;
    inFlight++;
    clearTimeout(timer);
    try {
      const { keys, unreadable = [] } = await call("get", "/api/v1/keys", {});
      // A slower response of an earlier refresh would show an earlier state again.
      if (stopped || sequence < shownSequence) return;
      shownSequence = sequence;
      failures = 0;
      shownError = null;
      setText(warning, "");
      show(keys, unreadable);
      focusLinkedKey();
      if (await loadUsage(keys) && !stopped && sequence === shownSequence) show(keys, unreadable);
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

  /** Moves to the key that a notice links to, once. */
  function focusLinkedKey() {
    if (linkedKey) cards.get(linkedKey)?.heading.focus();
    linkedKey = undefined;
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
    list.removeAttribute("aria-busy");
    if (shownSequence) {
      setText(warning, errorMessage(error, "Showing the last known numbers. Retrying automatically."));
    } else {
      setText(keyCount, "");
      setText(loadError, errorMessage(error));
      replaceCards([loadFailed]);
      announce(`Can't load your keys. ${errorMessage(error)}`);
    }
  }

  /**
   * @param {Key[]} keys
   * @param {UnreadableKey[]} unreadable
   */
  function show(keys, unreadable) {
    list.removeAttribute("aria-busy");
    const count = keys.length + unreadable.length;
    const full = count >= settings.keys_per_account;
    setText(keyCount, `${count} of ${settings.keys_per_account} keys` + (full ? " · delete one to create another" : ""));
    createButton.disabled = full;
    totals.update(keys);
    announceChanges(keys);
    shown = new Map(keys.map((key) => [key.id, key]));
    const labels = labelsOf([...keys, ...unreadable]);
    const elements = [
      ...keys.map((key) => cardIn(cards, key, labels, (actions) => keyCard(key, actions))),
      ...unreadable.map((key) => cardIn(unreadableCards, key, labels, (actions) => unreadableCard(key, actions))),
    ];
    keepOnly(cards, keys);
    keepOnly(unreadableCards, unreadable);
    keepOnly(usage, keys);
    replaceCards(elements.length ? elements : [firstKey]);
    refreshTimes(list);
  }

  /**
   * Returns the element of a key's card, which is created once and then updated.
   * @template {Key | UnreadableKey} K
   * @param {Map<string, import("./card.js").Card<K>>} cards
   * @param {K} key
   * @param {Map<string, string>} labels
   * @param {(actions: import("./card.js").List) => import("./card.js").Card<K>} create
   */
  function cardIn(cards, key, labels, create) {
    const card = cards.get(key.id) ?? create({ refresh, refreshWithout });
    cards.set(key.id, card);
    card.update(key, labels.get(key.id) ?? "", usage.get(key.id)?.days);
    return card.element;
  }

  /**
   * Makes these elements the content of the list. Elements that stay are not moved, because that would drop the focus.
   * @param {HTMLElement[]} elements
   */
  function replaceCards(elements) {
    const focusedAt = [...list.children].findIndex((child) => child.contains(document.activeElement));
    for (const child of [...list.children]) if (!elements.some((element) => element === child)) child.remove();
    elements.forEach((element, i) => {
      if (list.children[i] !== element) list.insertBefore(element, list.children[i] ?? null);
    });
    if (focusedAt >= 0 && !list.contains(document.activeElement)) focusTarget(focusedAt).focus();
  }

  /**
   * What to focus at a position of the list: the card there or the last one, else the button that creates a key.
   * @param {number} index
   * @returns {HTMLElement}
   */
  function focusTarget(index) {
    const element = list.children[Math.min(index, list.children.length - 1)];
    return element?.querySelector("h2[tabindex]") ?? element?.querySelector("button") ?? createButton;
  }

  /** @param {HTMLElement} card */
  async function refreshWithout(card) {
    const index = [...list.children].indexOf(card);
    await refresh();
    return focusTarget(index);
  }

  /** @param {string} id */
  function focusCard(id) {
    const heading = cards.get(id)?.heading;
    if (heading?.isConnected) heading.focus();
    else focusMain();
  }

  /**
   * Tells screen readers about keys that were paused or reached their daily limit since the last refresh.
   * @param {Key[]} keys
   */
  function announceChanges(keys) {
    const changes = keys.flatMap((key) => {
      const before = shown.get(key.id);
      if (!before) return [];
      if (key.pause && !before.pause) return [`Key ${key.name} is paused: ${key.pause.reason}.`];
      if (isUsedUp(key) && !isUsedUp(before)) return [`Key ${key.name} has reached its daily limit.`];
      return [];
    });
    if (changes.length) announce(changes.join(" "));
  }

  const onVisibilityChange = () => document.visibilityState === "visible" && refresh();
  document.addEventListener("visibilitychange", onVisibilityChange);
  refresh();
  return {
    element,
    stop: () => {
      stopped = true;
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", onVisibilityChange);
    },
  };
}

/**
 * Names of the keys for screen readers. Where several keys have the same name, their hints tell them apart.
 * @param {(Key | UnreadableKey)[]} keys
 * @returns {Map<string, string>} by ID
 */
function labelsOf(keys) {
  /** @param {Key | UnreadableKey} key */
  const nameOf = (key) => key.name ?? "Unknown key";
  return new Map(keys.map((key) => {
    const isUnique = keys.filter((other) => nameOf(other) === nameOf(key)).length === 1;
    return [key.id, isUnique ? nameOf(key) : `${nameOf(key)}, ${key.hint ?? key.id}`];
  }));
}

/**
 * Deletes cards or usage whose key is no longer listed.
 * @param {Map<string, unknown>} entries by key ID
 * @param {{id: string}[]} keys
 */
function keepOnly(entries, keys) {
  for (const id of entries.keys()) if (!keys.some((key) => key.id === id)) entries.delete(id);
}

/** Numbers over all keys. */
function totalsOf() {
  /** @param {string} name @param {string} [kind] */
  const total = (name, kind) => {
    const value = h("dd");
    return { value, element: h("div", { class: kind }, h("dt", null, name), value) };
  };
  const all = {
    requests: total("Requests today"), active: total("Active"), limited: total("At limit", "limited"),
    paused: total("Paused"), inactive: total("Inactive"),
  };
  const element = h("dl", { class: "totals", hidden: true }, ...Object.values(all).map((total) => total.element));

  /** @param {Key[]} keys */
  function update(keys) {
    element.hidden = !keys.length;
    const limited = keys.filter((key) => key.state === "active" && isUsedUp(key)).length;
    /** @param {Key["state"]} state */
    const count = (state) => keys.filter((key) => key.state === state).length;
    setText(all.requests.value, number(keys.reduce((sum, key) => sum + key.used_today, 0)));
    setText(all.active.value, number(count("active") - limited));
    setText(all.limited.value, number(limited));
    setText(all.paused.value, number(count("paused")));
    setText(all.inactive.value, number(count("inactive")));
    all.limited.element.hidden = !limited;
    setAttribute(all.paused.element, "class", count("paused") ? "warn" : "");
  }

  return { element, update };
}

/**
 * @param {"key" | "alert"} iconName
 * @param {string} title
 * @param {HTMLElement} text
 * @param {HTMLElement} action
 */
function emptyState(iconName, title, text, action) {
  return h("div", { class: "empty" }, icon(iconName), h("h2", null, title), text, action);
}
