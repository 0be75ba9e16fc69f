// The list of keys: tiles that count and filter them, and a row per key. Rows are updated in place.
import { announce, button, h, icon, setAttribute, setText } from "./dom.js";
import { dayBars, lastDays, todayMeter } from "./chart.js";
import { showState, stateOf, STATES } from "./key.js";
import { ago, date, number, shortDay, today } from "./format.js";

/** @typedef {import("./api.js").Key} Key */
/** @typedef {import("./api.js").UnreadableKey} UnreadableKey */
/** @typedef {import("./api.js").DayUsage} DayUsage */
/** @typedef {keyof typeof STATES} State */
/** @typedef {{keys: Key[], unreadable?: UnreadableKey[]}} Keys */

/** @type {State[]} */
const FILTERS = ["active", "paused", "limited", "expired", "inactive"];
/** What needs attention is listed first. @type {State[]} */
const ORDER = ["paused", "limited", "suspended", "expired", "active", "inactive"];
const DAY_MS = 86_400_000;
/** An expiry within this time stands out. */
const SOON_MS = 7 * DAY_MS;

/**
 * @param {import("./api.js").Settings} settings
 * @param {() => void} create
 * @param {() => void} retry
 */
export function keyList(settings, create, retry) {
  /** @type {Map<string, ReturnType<typeof keyRow>>} */
  const rows = new Map();
  /** @type {State | null} */
  let filter = null;
  let update = () => {};
  const keyCount = h("p", { class: "key-count" }, "Loading your keys…");
  const createButton = button("Create key", { class: "primary", icon: "plus", onclick: create });
  const requests = h("strong");
  const tiles = FILTERS.map((state) => {
    const count = h("strong");
    return { state, count, element: h("button", { type: "button", class: state, onclick: () => setFilter(filter === state ? null : state) }, h("span", null, STATES[state]), count) };
  });
  const totals = h("div", { class: "totals", role: "group", "aria-label": "Filter by state", hidden: true },
    h("p", null, h("span", null, "Requests today"), requests), ...tiles.map((tile) => tile.element));
  const table = h("ul", { class: "rows" });
  const columns = h("div", { class: "row columns", "aria-hidden": "true" }, ...["Key", "State", "Used today", "Last 30 days", "Last used", "Expires"].map((name) => h("span", null, name)));
  const listed = h("div", { class: "listed" }, columns, table);
  const loadError = h("p");
  const loadFailed = emptyState("alert", "Can't load your keys", loadError, button("Try again", { class: "primary", onclick: retry }));
  const firstKey = emptyState("key", "No keys yet", h("p", null, "Create a key and make your first request with curl."),
    button("Create your first key", { class: "primary", icon: "plus", onclick: create }));
  const noneMatch = emptyState("key", "No key is in this state", h("p"), button("Show all keys", { class: "quiet", onclick: () => setFilter(null) }));
  const slot = h("div", { class: "slot", "aria-busy": "true" }, h("div", { class: "card skeleton" }));
  const element = h("div", { class: "key-list" }, h("div", { class: "title" }, h("div", null, h("h1", { tabindex: -1 }, "API keys"), keyCount), createButton), totals, slot);

  /** @param {State | null} state */
  function setFilter(state) {
    filter = state;
    update();
    announce(`${table.children.length} ${table.children.length === 1 ? "key" : "keys"} shown`);
  }

  /**
   * @param {Keys} keys
   * @param {(id: string) => DayUsage[] | null | undefined} usage undefined before it has loaded and null if that failed
   * @param {number} requestsToday
   */
  function show({ keys, unreadable = [] }, usage, requestsToday) {
    const states = new Map(keys.map((key) => [key.id, stateOf(key)]));
    /** @param {State} state */
    const countOf = (state) => [...states.values()].filter((other) => other === state).length;
    // A key and the old one that it has replaced count as one.
    const count = keys.filter((key) => !key.successor).length + unreadable.length;
    const full = count >= settings.keys_per_account;
    const advice = countOf("expired") ? " · expired keys count until you delete them" : " · delete one to create another";
    setText(keyCount, `${count} of ${settings.keys_per_account} keys${full ? advice : ""}`);
    createButton.disabled = full;
    totals.hidden = !count;
    setText(requests, number(requestsToday));
    for (const tile of tiles) {
      setText(tile.count, number(countOf(tile.state)));
      setAttribute(tile.element, "aria-pressed", String(filter === tile.state));
      tile.element.classList.toggle("some", countOf(tile.state) > 0);
      tile.element.hidden = ["limited", "expired"].includes(tile.state) && !countOf(tile.state) && filter !== tile.state;
    }
    const labels = labelsOf([...keys, ...unreadable]);
    const rank = (/** @type {Key} */ key) => ORDER.indexOf(states.get(key.id) ?? "active");
    const listedKeys = [...keys].sort((a, b) => rank(a) - rank(b)).filter((key) => !filter || states.get(key.id) === filter);
    const elements = [...listedKeys, ...(filter ? [] : unreadable)].map((key) => {
      const row = rows.get(key.id) ?? keyRow(key.id);
      rows.set(key.id, row);
      row.update(key, labels.get(key.id) ?? "", usage(key.id));
      return row.element;
    });
    for (const id of rows.keys()) if (!labels.has(id)) rows.delete(id);
    const focused = focusInside();
    const focusedAt = [...table.children].findIndex((child) => child.contains(focused));
    for (const child of [...table.children]) if (!elements.some((element) => element === child)) child.remove();
    elements.forEach((element, i) => {
      if (table.children[i] !== element) table.insertBefore(element, table.children[i] ?? null);
    });
    fillSlot(elements.length ? listed : count ? noneMatch : firstKey, focused, focusedAt);
  }

  const focusInside = () => /** @type {HTMLElement | null} */ (slot.contains(document.activeElement) ? document.activeElement : null);

  /**
   * Shows the content. A row that was moved has lost the focus and gets it back; in place of what is gone, the next one gets it.
   * @param {HTMLElement} content
   * @param {HTMLElement | null} focused what had the focus in the slot
   * @param {number} row its position
   */
  function fillSlot(content, focused, row) {
    slot.removeAttribute("aria-busy");
    if (slot.firstChild !== content) slot.replaceChildren(content);
    if (!focused || focusInside()) return;
    /** @type {NodeListOf<HTMLElement>} */
    const targets = content.querySelectorAll("a, button");
    (slot.contains(focused) ? focused : targets[Math.max(Math.min(row, targets.length - 1), 0)])?.focus();
  }

  return {
    element,
    /** @param {Parameters<typeof show>} args */
    update: (...args) => (update = () => show(...args))(),
    /** @param {string} message why the keys can't be loaded */
    showError: (message) => {
      setText(keyCount, "");
      setText(loadError, message);
      fillSlot(loadFailed, focusInside(), 0);
    },
    /** @param {string} id @returns {HTMLElement | null} the link to the key, if it is listed */
    linkOf: (id) => table.querySelector(`a[href="#/keys/${id}"]`),
  };
}

/** @param {string} id */
function keyRow(id) {
  const link = h("a", { href: `#/keys/${id}` });
  const [hint, badge, month, lastUsed, expires, expiry] = [h("code"), h("span"), h("span", { class: "hint" }), h("span"), h("span", { class: "column" }), h("span")];
  const meter = todayMeter();
  const bars = dayBars();
  const details = [meter.element, h("div", { class: "spark" }, month), h("div", { class: "last-used" }, h("span", { class: "column" }, "Last used "), lastUsed),
    h("div", { class: "expiry" }, expires, expiry)];
  const element = h("li", { class: "row", "data-key": id }, h("div", { class: "key-name" }, link, hint), h("div", null, badge), ...details);

  /**
   * @param {Key | UnreadableKey} key
   * @param {string} label its name, unique on the page
   * @param {DayUsage[] | null} [usage]
   */
  function update(key, label, usage) {
    const state = "state" in key ? stateOf(key) : "unreadable";
    setAttribute(element, "class", `row ${state}`);
    setText(link, key.name ?? "Unknown key");
    setAttribute(link, "aria-label", label);
    setText(hint, key.hint ?? key.id);
    showState(badge, state);
    for (const detail of details) detail.hidden = state === "unreadable";
    if (!("state" in key)) return;
    const days = usage ? lastDays(usage, key.used_today) : [];
    meter.update(key, label);
    if (usage) bars.update(days);
    if (usage && month.firstChild !== bars.element) month.replaceChildren(bars.element);
    if (usage === null) setText(month, "Can't be loaded");
    setText(lastUsed, lastUse(days, key));
    const left = key.expires_at ? key.expires_at * 1000 - Date.now() : Infinity;
    setText(expires, state === "expired" ? "Expired " : "Expires ");
    setText(expiry, left === Infinity ? "never" : Math.abs(left) < DAY_MS ? ago(Date.now() + left) : date(Date.now() + left));
    setAttribute(expiry, "class", left > 0 && left < SOON_MS ? "soon" : "");
  }

  return { element, update };
}

/**
 * The last day with requests.
 * @param {DayUsage[]} days
 * @param {Key} key
 */
function lastUse(days, key) {
  if (key.used_today) return "today";
  if (!days.length) return "…";
  const last = [...days].reverse().find((day) => day.requests);
  if (!last) return key.created_at > Date.parse(days[0].day) ? "never" : "not in 30 days";
  return Date.parse(today()) - Date.parse(last.day) === DAY_MS ? "yesterday" : shortDay(last.day);
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
 * @param {"key" | "alert"} iconName
 * @param {string} title
 * @param {HTMLElement} text
 * @param {HTMLElement} action
 */
function emptyState(iconName, title, text, action) {
  return h("div", { class: "empty" }, icon(iconName), h("h2", null, title), text, action);
}
