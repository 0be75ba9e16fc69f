// The card of one key: its state, today's usage, the last 30 days and the actions.
import { call, errorMessage } from "./api.js";
import { button, h, icon, toast } from "./dom.js";
import { monthChart, todayMeter } from "./chart.js";
import { date, time } from "./format.js";
import { confirm, open, prompt } from "./dialogs.js";

/** @typedef {import("./api.js").Key} Key */
/** @typedef {import("./api.js").UnreadableKey} UnreadableKey */
/** @typedef {import("./api.js").DayUsage} DayUsage */

/** @type {Record<Key["state"], string>} */
const STATES = { active: "Active", paused: "Paused", inactive: "Inactive" };

/**
 * @param {Key} key
 * @param {DayUsage[] | undefined} usage
 * @param {() => Promise<void>} refresh
 */
export function keyCard(key, usage, refresh) {
  return h("article", { class: `card ${key.state}`, "data-key": key.id, "aria-label": `Key ${key.name}` },
    h("div", { class: "card-head" },
      h("h2", null, key.name),
      h("span", { class: `badge ${key.state}` }, STATES[key.state])),
    h("p", { class: "facts" },
      h("code", { class: "key-hint" }, key.hint),
      h("span", { class: "scope", title: "Scope" }, key.scope),
      h("span", null, "created ", date(key.created_at))),
    key.pause ? pauseBanner(key, key.pause, refresh) : null,
    h("div", { class: "numbers" }, todayMeter(key), usage ? monthChart(usage, key.used_today) : h("div", { class: "chart skeleton" })),
    actions(key, refresh));
}

/**
 * The card of a key whose stored data can't be read. It can only be deleted.
 * @param {UnreadableKey} key
 * @param {() => Promise<void>} refresh
 */
export function unreadableCard(key, refresh) {
  const name = key.name ?? "Unknown key";
  const remove = button("Delete", {
    class: "ghost risky", icon: "trash", "data-action": "delete",
    onclick: () => confirm({
      title: `Delete “${name}” permanently?`, action: "Delete key", danger: true, done: `Deleted “${name}”`,
      text: "Requests with this key get 401 from now on. This can't be undone.",
    }, async () => {
      await call("delete", "/api/v1/keys/{id}", { id: key.id });
      await refresh();
    }),
  });
  return h("article", { class: "card inactive", "data-key": key.id, "aria-label": `Key ${name}` },
    h("div", { class: "card-head" }, h("h2", null, name), h("span", { class: "badge inactive" }, "Unreadable")),
    h("p", { class: "facts" }, h("code", { class: "key-hint" }, key.hint ?? key.id)),
    h("p", { class: "problem" }, "The data of this key can't be read, so requests with it fail. Ask the operator to restore it, or delete it."),
    h("div", { class: "actions" }, remove));
}

/**
 * @param {Key} key
 * @param {NonNullable<Key["pause"]>} pause
 * @param {() => Promise<void>} refresh
 */
function pauseBanner(key, pause, refresh) {
  const resume = button("Resume key", {
    class: "primary", icon: "play", "data-action": "resume", "aria-label": `Resume key ${key.name}`,
    onclick: async () => {
      resume.disabled = true;
      try {
        await call("post", "/api/v1/keys/{id}/resume", { id: key.id });
        toast(`Resumed “${key.name}”`);
        await refresh();
      } catch (error) {
        resume.disabled = false;
        problem.textContent = errorMessage(error);
      }
    },
  });
  const problem = h("span", { class: "problem", role: "alert" });
  return h("div", { class: "pause" }, icon("pause"),
    h("div", { class: "pause-text" },
      h("strong", null, "Paused ", time(pause.at)),
      h("span", null, `${capitalize(pause.reason)}. Requests with this key get 429 until you resume it.`), problem),
    resume);
}

/**
 * @param {Key} key
 * @param {() => Promise<void>} refresh
 */
function actions(key, refresh) {
  /** @param {Promise<unknown>} change */
  const thenRefresh = async (change) => {
    await change;
    await refresh();
  };
  const events = button("Events", { class: "ghost", icon: "clock", "data-action": "events", onclick: () => showEvents(key) });
  const rename = button("Rename", {
    class: "ghost", icon: "pencil", "data-action": "rename",
    onclick: () => prompt({ title: "Rename key", label: "Name", value: key.name, action: "Save", done: "Renamed" },
      (name) => thenRefresh(call("put", "/api/v1/keys/{id}/name", { id: key.id, body: { name } }))),
  });
  const deactivate = button("Deactivate", {
    class: "ghost", icon: "stop", "data-action": "deactivate",
    onclick: () => confirm({
      title: `Deactivate “${key.name}”?`, action: "Deactivate", danger: true, done: `Deactivated “${key.name}”`,
      text: "Requests with this key get 403 from now on. You can reactivate it at any time.",
    }, () => thenRefresh(call("post", "/api/v1/keys/{id}/deactivate", { id: key.id }))),
  });
  const reactivate = button("Reactivate", {
    class: "ghost strong", icon: "play", "data-action": "reactivate",
    onclick: () => confirm({
      title: `Reactivate “${key.name}”?`, action: "Reactivate", done: `Reactivated “${key.name}”`,
      text: "Requests with this key work again immediately.",
    }, () => thenRefresh(call("post", "/api/v1/keys/{id}/reactivate", { id: key.id }))),
  });
  const remove = button("Delete", {
    class: "ghost risky", icon: "trash", "data-action": "delete",
    onclick: () => confirm({
      title: `Delete “${key.name}” permanently?`, action: "Delete key", danger: true, done: `Deleted “${key.name}”`,
      text: `Requests with ${key.hint} get 401 from now on. This can't be undone.`,
    }, () => thenRefresh(call("delete", "/api/v1/keys/{id}", { id: key.id }))),
  });
  return h("div", { class: "actions" }, events, rename, key.state === "inactive" ? reactivate : deactivate, remove);
}

/** @param {Key} key */
async function showEvents(key) {
  const list = h("ol", { class: "events", "aria-busy": "true" }, h("li", { class: "skeleton" }));
  const heading = h("p", { class: "facts" }, h("strong", null, key.name), h("code", null, key.hint));
  open("Events", [h("div", { class: "content" }, heading, list)], { class: "drawer" });
  try {
    const { events } = await call("get", "/api/v1/keys/{id}/events", { id: key.id });
    list.replaceChildren(...events.map((event) => {
      // A reason such as "resumed (by the owner)". Events of the first version don't name the actor.
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
