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
const USAGE_REFRESH_MS = 60_000;

/**
 * @param {import("./api.js").Settings} settings
 * @returns {{element: HTMLElement, stop: () => void}}
 */
export function keysView(settings) {
  /** @type {Map<string, {days: DayUsage[], at: number}>} */
  const usage = new Map();
  /** @type {Map<string, import("./card.js").Card<Key>>} */
  const cards = new Map();
  /** @type {Map<string, import("./card.js").Card<UnreadableKey>>} */
  const unreadableCards = new Map();
  /** Keys as shown last, by ID. @type {Map<string, Key>} */
  let shown = new Map();
  // Numbers of the refresh that was started last, and of the one that is shown.
  let started = 0;
  let finished = 0;
  let inFlight = 0;
  let stopped = false;

  const keyCount = h("p", { class: "key-count" }, "Loading your keys…");
  const create = () => createKey(refresh, focusCard);
  const createButton = button("Create key", { class: "primary", icon: "plus", onclick: create });
  const warning = h("p", { class: "warning", role: "status" });
  const totals = totalsOf();
  const list = h("div", { class: "cards", "aria-busy": "true" }, h("div", { class: "card skeleton" }), h("div", { class: "card skeleton" }));
  const element = h("main", { class: "keys" },
    h("div", { class: "title" }, h("div", null, h("h1", { tabindex: -1 }, "API keys"), keyCount), createButton), warning, totals.element, list);
  const firstKey = emptyState("key", "No keys yet", "Create a key and make your first request with curl.",
    button("Create your first key", { class: "primary", icon: "plus", onclick: create }));

  async function refresh() {
    const sequence = ++started;
    inFlight++;
    try {
      const { keys, unreadable = [] } = await call("get", "/api/v1/keys", {});
      // A slower response of an earlier refresh would show an earlier state again.
      if (stopped || sequence < finished) return;
      finished = sequence;
      setText(warning, "");
      show(keys, unreadable);
      if (await loadUsage(keys) && !stopped && sequence === finished) show(keys, unreadable);
    } catch (error) {
      // An earlier refresh may fail because of a change that the latest one shows, such as a deleted key.
      const isLatest = !stopped && sequence === started;
      if (isLatest && !(error instanceof ApiError && error.code === "unauthenticated")) showError(error);
    } finally {
      inFlight--;
    }
  }

  /**
   * Returns whether there was something to load.
   * @param {Key[]} keys
   */
  async function loadUsage(keys) {
    const outdated = keys.filter((key) => Date.now() - (usage.get(key.id)?.at ?? 0) > USAGE_REFRESH_MS);
    await Promise.all(outdated.map(async (key) => {
      const { days } = await call("get", "/api/v1/keys/{id}/usage", { id: key.id });
      usage.set(key.id, { days, at: Date.now() });
    }));
    return outdated.length > 0;
  }

  /** @param {unknown} error */
  function showError(error) {
    list.removeAttribute("aria-busy");
    if (shown.size || firstKey.isConnected) {
      setText(warning, `${errorMessage(error)} Showing the last known numbers. Retrying automatically.`);
    } else {
      setText(keyCount, "");
      const retry = button("Try again", { class: "primary", onclick: refresh });
      const hadFocus = list.contains(document.activeElement);
      list.replaceChildren(emptyState("alert", "Can't load your keys", errorMessage(error), retry));
      if (hadFocus) retry.focus();
      else announce(`Can't load your keys. ${errorMessage(error)}`);
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
      ...keys.map((key) => cardIn(cards, key, labels, (list) => keyCard(key, list))),
      ...unreadable.map((key) => cardIn(unreadableCards, key, labels, (list) => unreadableCard(key, list))),
    ];
    keepOnly(cards, keys);
    keepOnly(unreadableCards, unreadable);
    place(elements.length ? elements : [firstKey]);
    refreshTimes(list);
  }

  /**
   * Returns the element of a key's card, which is created once and then updated.
   * @template {Key | UnreadableKey} K
   * @param {Map<string, import("./card.js").Card<K>>} cards
   * @param {K} key
   * @param {Map<string, string>} labels
   * @param {(list: import("./card.js").List) => import("./card.js").Card<K>} create
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
  function place(elements) {
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
   * Tells screen readers about keys that stopped working since the last refresh.
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

  // A response that takes longer than the interval must not pile up requests.
  const timer = setInterval(() => document.visibilityState === "visible" && !inFlight && refresh(), REFRESH_MS);
  const onVisibilityChange = () => document.visibilityState === "visible" && refresh();
  document.addEventListener("visibilitychange", onVisibilityChange);
  refresh();
  return {
    element,
    stop: () => {
      stopped = true;
      clearInterval(timer);
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
 * Forgets the cards of other keys.
 * @param {Map<string, unknown>} cards
 * @param {{id: string}[]} keys
 */
function keepOnly(cards, keys) {
  for (const id of cards.keys()) if (!keys.some((key) => key.id === id)) cards.delete(id);
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
 * @param {string} text
 * @param {HTMLElement} action
 */
function emptyState(iconName, title, text, action) {
  return h("div", { class: "empty" }, icon(iconName), h("h2", null, title), h("p", null, text), action);
}
