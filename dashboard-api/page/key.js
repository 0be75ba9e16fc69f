// The page of one key: its state, its usage, its settings, examples and events. It is updated in place, so that the focus
// and a text selection stay.
import { call, errorMessage } from "./api.js";
import { button, errorToast, h, icon, setAttribute, setText, toast } from "./dom.js";
import { isUsedUp, lastDays, monthChart, todayMeter } from "./chart.js";
import { copyable, editKey, hasExpired, rotateKey } from "./create.js";
import { confirm } from "./dialogs.js";
import { examples } from "./examples.js";
import { date, number, time, timestamp } from "./format.js";

/** @typedef {import("./api.js").Key} Key */
/** @typedef {import("./api.js").UnreadableKey} UnreadableKey */
/** @typedef {import("./api.js").DayUsage} DayUsage */
/** @typedef {{element: HTMLElement, update: (key: Key, usage?: DayUsage[] | null) => void}} KeyPage */

export const STATES = { active: "Active", paused: "Paused", limited: "At limit", expired: "Expired", suspended: "Suspended", inactive: "Inactive", unreadable: "Unreadable" };

/**
 * What a request with this key meets. The API has no state for a key that has expired or reached its daily limit, or whose
 * account is suspended.
 * @param {Key} key
 * @returns {keyof typeof STATES}
 */
export function stateOf(key) {
  if (key.suspended) return "suspended";
  if (key.state === "inactive") return "inactive";
  if (hasExpired(key)) return "expired";
  return key.state === "active" && isUsedUp(key) ? "limited" : key.state;
}

/**
 * @param {Element} badge
 * @param {keyof typeof STATES} state
 */
export function showState(badge, state) {
  setAttribute(badge, "class", `badge ${state}`);
  setText(badge, STATES[state]);
}

/**
 * @param {Key} initial
 * @param {string} lookupUrl
 * @param {() => Promise<void>} refresh shows the current keys
 * @returns {KeyPage}
 */
export function keyPage(initial, lookupUrl, refresh) {
  let key = initial;
  const replace = () => rotateKey(key, refresh);
  const heading = h("h1", { tabindex: -1 });
  const badge = h("span");
  const meter = todayMeter();
  const burst = h("p", { class: "hint" });
  const chart = monthChart();
  const placeholder = h("p", { class: "chart skeleton" });
  const [expiry, origins] = [h("dd"), h("dd")];
  const [successor, replaceButton] = [h("a", null, "Replaced by a new key"), button("Replace", { class: "ghost", icon: "replace", onclick: replace })];
  const events = eventList(key.id);
  const pause = banner("pause", button("Resume key", { class: "primary", icon: "play", onclick: resume }));
  const expired = banner("clock", button("Replace key", { class: "primary", icon: "replace", onclick: replace }));
  const deactivate = button("Deactivate", {
    class: "ghost", icon: "stop", onclick: () => confirm({
      title: `Deactivate “${key.name}”?`, action: "Deactivate", done: `Deactivated “${key.name}”`,
      text: "Requests with this key get 403 from now on. You can reactivate it at any time.",
    }, () => change("deactivate", reactivate)),
  });
  const reactivate = button("Reactivate", {
    class: "ghost strong", icon: "play", onclick: () => confirm({
      title: `Reactivate “${key.name}”?`, action: "Reactivate", done: `Reactivated “${key.name}”`,
      text: "Requests with this key work again immediately.",
    }, () => change("reactivate", deactivate)),
  });
  const element = h("div", { class: "key-page" },
    h("a", { class: "back", href: "#/" }, "← All keys"),
    h("div", { class: "card-head" }, heading, badge),
    h("p", { class: "facts" },
      h("code", { class: "key-hint" }, key.hint), h("span", { class: "scope", title: "Scope" }, key.scope), h("span", null, `created ${date(key.created_at)}`), successor),
    pause.element,
    expired.element,
    h("section", { class: "card numbers", "aria-label": "Usage" }, h("div", null, meter.element, burst), placeholder),
    h("section", { class: "card", "aria-label": "Settings" },
      h("dl", { class: "settings" }, h("dt", null, "Expires"), expiry, h("dt", null, "Allowed web pages"), origins),
      h("div", { class: "actions" },
        button("Edit", { class: "ghost", icon: "pencil", onclick: () => editKey(key, refresh) }),
        replaceButton, deactivate, reactivate,
        deleteButton(key.id, () => key.name, `Requests with ${key.hint} get 401 from now on. This can't be undone.`, refresh))),
    h("section", { class: "card" }, h("h2", null, "Examples"), ...examples(lookupUrl).map(([language, code], i) =>
      h("details", { name: "example", open: i === 0 }, h("summary", null, language), copyable(language, code, `example-${i}`)))),
    h("section", { class: "card" }, h("h2", null, "Events"), events.element));

  async function resume() {
    try {
      await call("post", "/api/v1/keys/{id}/resume", { id: key.id });
      toast(`Resumed “${key.name}”`);
      await refresh();
      heading.focus();
    } catch (error) {
      errorToast(errorMessage(error));
    }
  }

  /**
   * @param {"deactivate" | "reactivate"} action
   * @param {HTMLElement} next what to focus
   */
  async function change(action, next) {
    await call("post", `/api/v1/keys/{id}/${action}`, { id: key.id });
    await refresh();
    return next;
  }

  /**
   * @param {Key} next
   * @param {DayUsage[] | null} [usage] undefined before it has loaded and null if that failed
   */
  function update(next, usage) {
    key = next;
    const state = stateOf(key);
    setAttribute(element, "data-key", key.id);
    setText(heading, key.name);
    showState(badge, state);
    const { pause: paused, expires_at: expiresAt, allowed_origins: allowed = [] } = key;
    const rate = key.burst_limit >= 60 ? `${Math.floor(key.burst_limit / 60)} requests per second` : `${key.burst_limit} requests per minute`;
    pause.update(state === "paused" && paused ? ["Paused", paused.at,
      `${capitalize(paused.reason)}. Requests with this key get 429 until you resume it. Fix the program first: at most ${rate} on average.`] : null);
    setAttribute(successor, "href", `#/keys/${key.successor}`);
    successor.hidden = !key.successor;
    replaceButton.hidden = Boolean(key.successor);
    expired.update(state === "expired" && expiresAt && !key.successor ? ["Expired", expiresAt * 1000,
      "Requests with this key get 403. Replace it, or edit its expiry. It counts toward your keys until you delete it."] : null);
    meter.update(key, key.name);
    setText(burst, `${number(key.burst_used)} of ${number(key.burst_limit)} in the last 60 seconds`);
    if (usage) {
      chart.update(lastDays(usage, key.used_today));
      if (placeholder.parentNode) placeholder.replaceWith(chart.element);
    } else if (usage === null) {
      setAttribute(placeholder, "class", "chart hint");
      setText(placeholder, "The usage of the last 30 days can't be loaded. Retrying every minute.");
    }
    setText(expiry, expiresAt ? timestamp(expiresAt * 1000) : "Never");
    setText(origins, allowed.join(", ") || "All web pages and programs");
    deactivate.hidden = key.state === "inactive";
    reactivate.hidden = key.state !== "inactive";
    events.update(key);
    const focused = document.activeElement;
    if (focused && element.contains(focused) && focused.closest("[hidden]")) heading.focus();
  }

  return { element, update };
}

/**
 * The page of a key whose stored data can't be read. It can only be deleted.
 * @param {UnreadableKey} key
 * @param {() => Promise<void>} refresh
 * @returns {KeyPage}
 */
export function unreadablePage(key, refresh) {
  const name = key.name ?? "Unknown key";
  const badge = h("span");
  showState(badge, "unreadable");
  const element = h("div", { class: "key-page" },
    h("a", { class: "back", href: "#/" }, "← All keys"),
    h("div", { class: "card-head" }, h("h1", { tabindex: -1 }, name), badge),
    h("p", { class: "facts" }, h("code", { class: "key-hint" }, key.hint ?? key.id)),
    h("p", { class: "problem" }, "The data of this key can't be read, so requests with it fail. Ask the operator to restore it, or delete it."),
    h("div", { class: "actions" }, deleteButton(key.id, () => name, "Requests with this key get 401 from now on. This can't be undone.", refresh)));
  return { element, update: () => {} };
}

/**
 * @param {string} id
 * @param {() => string} name
 * @param {string} text
 * @param {() => Promise<void>} refresh
 */
function deleteButton(id, name, text, refresh) {
  return button("Delete", {
    class: "ghost risky", icon: "trash", "data-action": "delete",
    onclick: () => confirm({ title: `Delete “${name()}” permanently?`, action: "Delete key", danger: true, done: `Deleted “${name()}”`, text }, async () => {
      await call("delete", "/api/v1/keys/{id}", { id });
      // Not by the location, which would show the list before the key is gone from it.
      history.replaceState(null, "", "#/");
      await refresh();
    }),
  });
}

/**
 * Says since when and why the key does not work, with the button that helps.
 * @param {"pause" | "clock"} iconName
 * @param {HTMLButtonElement} action
 */
function banner(iconName, action) {
  const [title, since, text] = [h("span"), h("span"), h("span")];
  const element = h("div", { class: "pause", hidden: true }, icon(iconName), h("div", { class: "pause-text" }, h("strong", null, title, " ", since), text), action);
  let shownAt = 0;
  return {
    element,
    /** @param {[string, number, string] | null} content title, time and text; null to hide it */
    update: (content) => {
      element.hidden = !content;
      if (!content) return;
      setText(title, content[0]);
      if (content[1] !== shownAt) since.replaceChildren(time(content[1]));
      shownAt = content[1];
      setText(text, content[2]);
    },
  };
}

/** @param {string} id of the key */
function eventList(id) {
  const element = h("ol", { class: "events", "aria-busy": "true" }, h("li", { class: "skeleton" }));
  /** What the events were loaded for. */
  let loadedFor = "";

  /** @param {Key} key */
  async function update({ state_since, name, expires_at, allowed_origins, daily_limit, suspended }) {
    const current = JSON.stringify([state_since, name, expires_at, allowed_origins, daily_limit, suspended]);
    if (current === loadedFor) return;
    loadedFor = current;
    try {
      const { events } = await call("get", "/api/v1/keys/{id}/events", { id });
      element.replaceChildren(...eventItems(events));
    } catch (error) {
      loadedFor = ""; // The next refresh tries again.
      element.replaceChildren(h("li", { class: "problem" }, errorMessage(error)));
    }
    element.removeAttribute("aria-busy");
  }

  return { element, update };
}

/** @param {import("./api.js").KeyEvent[]} events newest first */
export function eventItems(events) {
  if (!events.length) return [h("li", null, "No events in the last 31 days.")];
  return events.map((event) => {
    // A reason such as "resumed (by the owner)" or "abuse (by admin ada)".
    const actor = / \(by (the \w+|admin \S+)\)$/.exec(event.reason)?.[0] ?? "";
    const text = event.reason.slice(0, event.reason.length - actor.length);
    return h("li", { class: event.kind }, h("strong", null, capitalize(event.kind.replace("_", " "))), time(event.at),
      text === event.kind ? null : h("span", null, capitalize(text)),
      actor ? h("span", null, capitalize(actor.slice(2, -1))) : null);
  });
}

/** @param {string} text */
const capitalize = (text) => text.charAt(0).toUpperCase() + text.slice(1);
