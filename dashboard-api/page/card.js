// The card of one key: its state, today's usage, the last 30 days and the actions. A card is updated in place, so that the
// focus and a text selection stay.
import { call, errorMessage } from "./api.js";
import { button, h, icon, setAttribute, setText, toast } from "./dom.js";
import { isUsedUp, monthChart, todayMeter } from "./chart.js";
import { date, time } from "./format.js";
import { confirm, open, prompt } from "./dialogs.js";

/** @typedef {import("./api.js").Key} Key */
/** @typedef {import("./api.js").UnreadableKey} UnreadableKey */
/** @typedef {import("./api.js").DayUsage} DayUsage */
/**
 * The list that a card belongs to.
 * @typedef {object} List
 * @property {() => Promise<void>} refresh shows the current keys
 * @property {(card: HTMLElement) => Promise<HTMLElement>} refreshWithout the same, after the card's key was deleted; returns
 *   what to focus in place of the card
 */
/**
 * @template K
 * @typedef {object} Card
 * @property {HTMLElement} element
 * @property {HTMLElement} heading
 * @property {(key: K, label: string, usage?: DayUsage[] | null) => void} update shows the key. `label` is its name, unique on
 *   the page. `usage` is undefined before it has loaded and null if that failed
 */

/** @type {Record<Key["state"], string>} */
const STATES = { active: "Active", paused: "Paused", inactive: "Inactive" };

/**
 * @param {Key} initial
 * @param {List} list
 * @returns {Card<Key>}
 */
export function keyCard(initial, list) {
  let key = initial;
  const heading = h("h2", { tabindex: -1 });
  const badge = h("span");
  const meter = todayMeter();
  const chart = monthChart();
  const placeholder = h("p", { class: "chart skeleton" });
  const pause = pauseBanner(() => key, list, heading);
  const actions = actionsOf(() => key, list, () => element);
  const element = h("article", { "data-key": key.id },
    h("div", { class: "card-head" }, heading, badge),
    h("p", { class: "facts" },
      h("code", { class: "key-hint" }, key.hint),
      h("span", { class: "scope", title: "Scope" }, key.scope),
      h("span", null, "created ", date(key.created_at))),
    pause.element,
    h("div", { class: "numbers" }, meter.element, placeholder),
    actions.element);

  /**
   * @param {Key} next
   * @param {string} label
   * @param {DayUsage[] | null} [usage]
   */
  function update(next, label, usage) {
    key = next;
    const limited = key.state === "active" && isUsedUp(key);
    setAttribute(element, "class", `card ${key.state}`);
    setAttribute(element, "aria-label", `Key ${label}`);
    setText(heading, key.name);
    setAttribute(badge, "class", `badge ${limited ? "limited" : key.state}`);
    setText(badge, limited ? "Daily limit reached" : STATES[key.state]);
    pause.update(key, label);
    meter.update(key, label);
    if (usage) {
      chart.update(usage, key.used_today);
      if (placeholder.isConnected) placeholder.replaceWith(chart.element);
    } else if (usage === null) {
      setAttribute(placeholder, "class", "chart hint");
      setText(placeholder, "The usage of the last 30 days can't be loaded. Retrying every minute.");
    }
    actions.update(key, label);
    const focused = document.activeElement;
    if (focused && element.contains(focused) && focused.closest("[hidden]")) heading.focus();
  }

  return { element, heading, update };
}

/**
 * The card of a key whose stored data can't be read. It can only be deleted.
 * @param {UnreadableKey} key
 * @param {List} list
 * @returns {Card<UnreadableKey>}
 */
export function unreadableCard(key, list) {
  const name = key.name ?? "Unknown key";
  const heading = h("h2", { tabindex: -1 }, name);
  const remove = button("Delete", {
    class: "ghost risky", icon: "trash", "data-action": "delete",
    onclick: () => confirm({
      title: `Delete “${name}” permanently?`, action: "Delete key", danger: true, done: `Deleted “${name}”`,
      text: "Requests with this key get 401 from now on. This can't be undone.",
    }, async () => {
      await call("delete", "/api/v1/keys/{id}", { id: key.id });
      return list.refreshWithout(element);
    }),
  });
  const element = h("article", { class: "card inactive", "data-key": key.id },
    h("div", { class: "card-head" }, heading, h("span", { class: "badge inactive" }, "Unreadable")),
    h("p", { class: "facts" }, h("code", { class: "key-hint" }, key.hint ?? key.id)),
    h("p", { class: "problem" }, "The data of this key can't be read, so requests with it fail. Ask the operator to restore it, or delete it."),
    h("div", { class: "actions" }, remove));
  return {
    element, heading, update: (_, label) => {
      setAttribute(element, "aria-label", `Key ${label}`);
      setAttribute(remove, "aria-label", `Delete key ${label}`);
    },
  };
}

/**
 * @param {() => Key} current
 * @param {List} list
 * @param {HTMLElement} heading focused after the banner has disappeared
 */
function pauseBanner(current, list, heading) {
  const resume = button("Resume key", {
    class: "primary", icon: "play", "data-action": "resume",
    onclick: async () => {
      const { id, name } = current();
      if (resume.getAttribute("aria-disabled")) return;
      // Not `disabled`, which would drop the focus.
      resume.setAttribute("aria-disabled", "true");
      problem.textContent = "";
      try {
        await call("post", "/api/v1/keys/{id}/resume", { id });
        toast(`Resumed “${name}”`);
        await list.refresh();
        heading.focus();
      } catch (error) {
        problem.textContent = errorMessage(error);
      } finally {
        resume.removeAttribute("aria-disabled");
      }
    },
  });
  const since = h("span");
  const reason = h("span");
  const problem = h("span", { class: "problem", role: "alert" });
  const element = h("div", { class: "pause", hidden: true }, icon("pause"),
    h("div", { class: "pause-text" }, h("strong", null, "Paused ", since), reason, problem), resume);
  let shownAt = 0;

  /**
   * @param {Key} key
   * @param {string} label
   */
  function update({ pause }, label) {
    element.hidden = !pause;
    if (!pause) return;
    if (pause.at !== shownAt) since.replaceChildren(time(pause.at));
    shownAt = pause.at;
    const rate = pause.burst_limit >= 60 ? `${Math.floor(pause.burst_limit / 60)} requests per second` : `${pause.burst_limit} requests per minute`;
    setText(reason, `${capitalize(pause.reason)}. Requests with this key get 429 until you resume it. Fix the program first: at most ${rate} on average.`);
    setAttribute(resume, "aria-label", `Resume key ${label}`);
  }

  return { element, update };
}

/**
 * @param {() => Key} current
 * @param {List} list
 * @param {() => HTMLElement} card
 */
function actionsOf(current, list, card) {
  const events = button("Events", { class: "ghost", icon: "clock", "data-action": "events", onclick: () => showEvents(current()) });
  const rename = button("Rename", {
    class: "ghost", icon: "pencil", "data-action": "rename",
    onclick: () => {
      const { id, name } = current();
      prompt({ title: "Rename key", label: "Name", value: name, action: "Save", done: (name) => `Renamed to “${name}”` }, async (name) => {
        await call("patch", "/api/v1/keys/{id}", { id, body: { name } });
        await list.refresh();
      });
    },
  });
  const deactivate = button("Deactivate", {
    class: "ghost", icon: "stop", "data-action": "deactivate",
    onclick: () => {
      const { id, name } = current();
      confirm({
        title: `Deactivate “${name}”?`, action: "Deactivate", danger: true, done: `Deactivated “${name}”`,
        text: "Requests with this key get 403 from now on. You can reactivate it at any time.",
      }, async () => {
        await call("post", "/api/v1/keys/{id}/deactivate", { id });
        await list.refresh();
        return reactivate;
      });
    },
  });
  const reactivate = button("Reactivate", {
    class: "ghost strong", icon: "play", "data-action": "reactivate",
    onclick: () => {
      const { id, name } = current();
      confirm({
        title: `Reactivate “${name}”?`, action: "Reactivate", done: `Reactivated “${name}”`,
        text: "Requests with this key work again immediately.",
      }, async () => {
        await call("post", "/api/v1/keys/{id}/reactivate", { id });
        await list.refresh();
        return deactivate;
      });
    },
  });
  const remove = button("Delete", {
    class: "ghost risky", icon: "trash", "data-action": "delete",
    onclick: () => {
      const { id, name, hint } = current();
      confirm({
        title: `Delete “${name}” permanently?`, action: "Delete key", danger: true, done: `Deleted “${name}”`,
        text: `Requests with ${hint} get 401 from now on. This can't be undone.`,
      }, async () => {
        await call("delete", "/api/v1/keys/{id}", { id });
        return list.refreshWithout(card());
      });
    },
  });

  /**
   * @param {Key} key
   * @param {string} label
   */
  function update({ state }, label) {
    deactivate.hidden = state === "inactive";
    reactivate.hidden = state !== "inactive";
    setAttribute(events, "aria-label", `Events of key ${label}`);
    setAttribute(rename, "aria-label", `Rename key ${label}`);
    setAttribute(deactivate, "aria-label", `Deactivate key ${label}`);
    setAttribute(reactivate, "aria-label", `Reactivate key ${label}`);
    setAttribute(remove, "aria-label", `Delete key ${label}`);
  }

  return { element: h("div", { class: "actions" }, events, rename, deactivate, reactivate, remove), update };
}

/** @param {Key} key */
async function showEvents(key) {
  const list = h("ol", { class: "events", "aria-busy": "true" }, h("li", { class: "skeleton" }));
  const heading = h("p", { class: "facts" }, h("strong", null, key.name), h("code", null, key.hint));
  open("Events", [h("div", { class: "content" }, heading, list)], { class: "drawer" });
  try {
    const { events } = await call("get", "/api/v1/keys/{id}/events", { id: key.id });
    list.replaceChildren(...events.map((event) => {
      // A reason such as "resumed (by the owner)".
      const actor = / \(by the \w+\)$/.exec(event.reason)?.[0] ?? "";
      const text = event.reason.slice(0, event.reason.length - actor.length);
      return h("li", { class: event.kind }, h("strong", null, capitalize(event.kind.replace("_", " "))), time(event.at),
        text === event.kind ? null : h("span", null, capitalize(text)),
        actor ? h("span", null, capitalize(actor.slice(2, -1))) : null);
    }));
    if (!events.length) list.replaceChildren(h("li", null, "No events in the last 31 days."));
  } catch (error) {
    list.replaceChildren(h("li", { class: "problem" }, errorMessage(error)));
  }
  list.removeAttribute("aria-busy");
}

/** @param {string} text */
const capitalize = (text) => text.charAt(0).toUpperCase() + text.slice(1);
