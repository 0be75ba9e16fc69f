// One key: its state, today's use, 30 days, and what its owner may do with it.
import { call } from "./api.js";
import { button, h, icon, toast } from "./dom.js";
import { monthChart, todayMeter } from "./chart.js";
import { date, time } from "./format.js";
import { ask, confirm, open } from "./dialogs.js";
import { told } from "./api.js";

/** @typedef {import("./api.js").Key} Key */
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
      h("span", { class: "scope", title: "What the key may see" }, key.scope),
      h("span", null, "created ", date(key.created_at))),
    key.pause ? pauseBanner(key, key.pause, refresh) : null,
    h("div", { class: "numbers" }, todayMeter(key), usage ? monthChart(usage, key.used_today) : h("div", { class: "chart skeleton" })),
    actions(key, refresh));
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
        toast(`“${key.name}” works again`);
        await refresh();
      } catch (error) {
        resume.disabled = false;
        problem.textContent = told(error);
      }
    },
  });
  const problem = h("span", { class: "problem", role: "alert" });
  return h("div", { class: "pause" }, icon("pause"),
    h("div", { class: "pause-text" },
      h("strong", null, "Paused ", time(pause.at)),
      h("span", null, `${capital(pause.reason)}. Requests with it are refused until you resume it.`), problem),
    resume);
}

/**
 * @param {Key} key
 * @param {() => Promise<void>} refresh
 */
function actions(key, refresh) {
  /** @param {Promise<unknown>} change */
  const then = async (change) => {
    await change;
    await refresh();
  };
  const events = button("Events", { class: "ghost", icon: "clock", "data-action": "events", onclick: () => showEvents(key) });
  const rename = button("Rename", {
    class: "ghost", icon: "pencil", "data-action": "rename",
    onclick: () => ask({ title: "Rename key", label: "Name", value: key.name, action: "Save", done: "Renamed" },
      (name) => then(call("put", "/api/v1/keys/{id}/name", { id: key.id, body: { name } }))),
  });
  const deactivate = button("Deactivate", {
    class: "ghost", icon: "stop", "data-action": "deactivate",
    onclick: () => confirm({
      title: `Deactivate “${key.name}”?`, action: "Deactivate", danger: true, done: `“${key.name}” is deactivated`,
      text: "Requests with this key are refused with 403 at once. You can reactivate it at any time.",
    }, () => then(call("post", "/api/v1/keys/{id}/deactivate", { id: key.id }))),
  });
  const reactivate = button("Reactivate", {
    class: "ghost strong", icon: "play", "data-action": "reactivate",
    onclick: () => confirm({
      title: `Reactivate “${key.name}”?`, action: "Reactivate", done: `“${key.name}” works again`,
      text: "Requests with this key are answered again at once.",
    }, () => then(call("post", "/api/v1/keys/{id}/reactivate", { id: key.id }))),
  });
  const remove = button("Delete", {
    class: "ghost risky", icon: "trash", "data-action": "delete",
    onclick: () => confirm({
      title: `Delete “${key.name}” for good?`, action: "Delete key", danger: true, done: `“${key.name}” is deleted`,
      text: `Whoever still uses ${key.hint} gets 401 from now on. This can't be undone; its place becomes free.`,
    }, () => then(call("delete", "/api/v1/keys/{id}", { id: key.id }))),
  });
  return h("div", { class: "actions" }, events, rename, key.state === "inactive" ? reactivate : deactivate, remove);
}

/** @param {Key} key */
async function showEvents(key) {
  const list = h("ol", { class: "events", "aria-busy": "true" }, h("li", { class: "skeleton" }));
  const whose = h("p", { class: "facts" }, h("strong", null, key.name), h("code", null, key.hint));
  open("Events", [h("div", { class: "content" }, whose, list)], { class: "drawer" });
  try {
    const { events } = await call("get", "/api/v1/keys/{id}/events", { id: key.id });
    list.replaceChildren(...events.map((event) =>
      h("li", { class: event.kind }, h("strong", null, capital(event.kind.replace("_", " "))), time(event.at),
        event.reason === event.kind ? null : h("span", null, capital(event.reason)))));
    if (!events.length) list.replaceChildren(h("li", null, "Nothing in the last 31 days."));
  } catch (error) {
    list.replaceChildren(h("li", { class: "problem" }, told(error)));
  }
  list.removeAttribute("aria-busy");
}

/** @param {string} text */
const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);
