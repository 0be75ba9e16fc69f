// The list of keys. It refreshes automatically while the page is visible.
import { ApiError, call, errorMessage } from "./api.js";
import { button, h, icon } from "./dom.js";
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
  /** @type {Map<string, {content: string, element: HTMLElement}>} */
  const cards = new Map();
  const keyCount = h("p", { class: "key-count" }, "Loading your keys…");
  const create = button("Create key", { class: "primary", icon: "plus", onclick: () => createKey(refresh) });
  const warning = h("p", { class: "warning", role: "status" });
  const totals = h("dl", { class: "totals", hidden: true });
  const list = h("div", { class: "cards", "aria-busy": "true" }, h("div", { class: "card skeleton" }), h("div", { class: "card skeleton" }));
  const element = h("main", { class: "keys" },
    h("div", { class: "title" }, h("div", null, h("h1", null, "API keys"), keyCount), create), warning, totals, list);

  async function refresh() {
    try {
      const { keys, unreadable = [] } = await call("get", "/api/v1/keys", {});
      warning.textContent = "";
      show(keys, unreadable);
      await loadUsage(keys);
      show(keys, unreadable);
    } catch (error) {
      if (!(error instanceof ApiError && error.code === "unauthenticated")) showError(error);
    }
  }

  /** @param {Key[]} keys */
  async function loadUsage(keys) {
    const outdated = keys.filter((key) => Date.now() - (usage.get(key.id)?.at ?? 0) > USAGE_REFRESH_MS);
    await Promise.all(outdated.map(async (key) => {
      const { days } = await call("get", "/api/v1/keys/{id}/usage", { id: key.id });
      usage.set(key.id, { days, at: Date.now() });
    }));
  }

  /** @param {unknown} error */
  function showError(error) {
    list.removeAttribute("aria-busy");
    if (cards.size) {
      warning.textContent = `${errorMessage(error)} Showing the last known numbers. Retrying automatically.`;
    } else {
      keyCount.textContent = "";
      list.replaceChildren(emptyState("alert", "Can't load your keys", errorMessage(error),
        button("Try again", { class: "primary", onclick: refresh })));
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
    keyCount.textContent = `${count} of ${settings.keys_per_account} keys` + (full ? " · delete one to create another" : "");
    create.disabled = full;
    showTotals(totals, keys);
    if (!count) {
      list.replaceChildren(emptyState("key", "No keys yet", "Create a key and make your first request with curl.",
        button("Create your first key", { class: "primary", icon: "plus", onclick: () => createKey(refresh) })));
      cards.clear();
      return;
    }
    const elements = [
      ...keys.map((key) => cardFor(key.id, [key, usage.get(key.id)?.days], () => keyCard(key, usage.get(key.id)?.days, refresh))),
      ...unreadable.map((key) => cardFor(key.id, [key], () => unreadableCard(key, refresh))),
    ];
    for (const id of cards.keys()) if (![...keys, ...unreadable].some((key) => key.id === id)) cards.delete(id);
    if (elements.length !== list.children.length || elements.some((card, i) => list.children[i] !== card)) {
      list.replaceChildren(...elements);
    }
    refreshTimes(list);
  }

  /**
   * Returns a key's card: the same element if nothing has changed, to preserve focus and selection.
   * @param {string} id
   * @param {unknown} shown
   * @param {() => HTMLElement} create
   */
  function cardFor(id, shown, create) {
    const content = JSON.stringify(shown);
    const current = cards.get(id);
    if (current?.content === content) return current.element;
    const element = create();
    if (current?.element.isConnected) replaceKeepingFocus(current.element, element);
    cards.set(id, { content, element });
    return element;
  }

  const timer = setInterval(() => document.visibilityState === "visible" && refresh(), REFRESH_MS);
  const onVisibilityChange = () => document.visibilityState === "visible" && refresh();
  document.addEventListener("visibilitychange", onVisibilityChange);
  refresh();
  return {
    element,
    stop: () => {
      clearInterval(timer);
      document.removeEventListener("visibilitychange", onVisibilityChange);
    },
  };
}

/**
 * @param {HTMLElement} before
 * @param {HTMLElement} after
 */
function replaceKeepingFocus(before, after) {
  const action = before.contains(document.activeElement) ? document.activeElement?.getAttribute("data-action") : null;
  before.replaceWith(after);
  if (action) {
    const target = after.querySelector(`[data-action="${action}"]`) ?? after.querySelector("[data-action]");
    if (target instanceof HTMLElement) target.focus();
  }
}

/**
 * @param {HTMLElement} totals
 * @param {Key[]} keys
 */
function showTotals(totals, keys) {
  totals.hidden = !keys.length;
  /** @param {Key["state"]} state */
  const count = (state) => keys.filter((key) => key.state === state).length;
  /** @param {string} name @param {number} value @param {string} [kind] */
  const total = (name, value, kind = "") => h("div", { class: value ? kind : "" }, h("dt", null, name), h("dd", null, number(value)));
  totals.replaceChildren(
    total("Requests today", keys.reduce((sum, key) => sum + key.used_today, 0)),
    total("Active", count("active")), total("Paused", count("paused"), "warn"), total("Inactive", count("inactive")));
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
