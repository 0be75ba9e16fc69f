// One account or one key, for admins.
import { call } from "./api.js";
import { lastDays, monthChart, todayMeter } from "./chart.js";
import { copyable } from "./create.js";
import { confirm, field, formOf, open } from "./dialogs.js";
import { button, h, icon, toast } from "./dom.js";
import { date, number, time, timestamp } from "./format.js";
import { eventItems, showState, stateOf } from "./key.js";

/** @typedef {import("./api.js").Key} Key */

/**
 * @param {string} id
 * @param {string} own login of the admin, who can't suspend or delete the own account
 * @param {() => Promise<void>} refresh
 */
export async function accountPage(id, own, refresh) {
  const { account, keys, events } = await call("get", "/api/v1/admin/accounts/{id}", { id });
  const { login, suspension } = account;
  /** @param {import("./api.js").Schemas["AccountAction"]} action @param {string} [reason] */
  const change = async (action, reason) => {
    await call("post", "/api/v1/admin/accounts/{id}/changes", { id, body: { action, reason } });
    await refresh();
  };
  const state = suspension
    ? button("Restore", { class: "ghost strong", icon: "play", onclick: () => confirm({
      title: `Restore ${login}?`, action: "Restore", done: `Restored ${login}`, text: "Each key returns to its previous state.",
    }, () => change("restore")) })
    : button("Suspend", { class: "ghost", icon: "stop", onclick: () => suspend(login, (reason) => change("suspend", reason)) });
  const reset = button("Reset password", { class: "ghost", icon: "key", onclick: () => confirm({
    title: `Create a link to set the password of ${login}?`, action: "Create the link", done: "Link created", text: "Until it is used, the old password is valid.",
  }, async () => {
    const link = await call("post", "/api/v1/admin/accounts/{id}/password-link", { id });
    await refresh();
    showLink(link);
  }) });
  const signOut = button("End sessions", { class: "ghost", icon: "close", onclick: () => confirm({
    title: `Sign ${login} out everywhere?`, action: "End sessions", done: "Sessions ended", text: "Links to set the password are revoked, too.",
  }, () => change("end_sessions")) });
  const unreadable = keys.unreadable ?? [];
  return h("div", { class: "key-page" },
    h("a", { class: "back", href: "#/admin" }, "← All accounts"),
    h("div", { class: "card-head" }, h("h1", { tabindex: -1 }, login), suspension ? h("span", { class: "badge suspended" }, "Suspended") : null),
    h("p", { class: "facts" }, h("span", null, account.role), h("span", null, `created ${date(account.created_at)}`),
      h("span", null, account.credential_version ? "has a password" : "has no password yet")),
    suspension ? h("div", { class: "pause" }, icon("stop"), h("div", { class: "pause-text" }, h("strong", null, "Suspended ", time(suspension.at)), h("span", null, suspension.reason))) : null,
    h("section", { class: "card" }, h("h2", null, "Keys"),
      keys.keys.length ? h("ul", { class: "rows" }, ...keys.keys.map(keyRow)) : h("p", { class: "hint" }, "No keys."),
      unreadable.length ? h("p", { class: "problem" }, `Can't be read: ${unreadable.map((key) => key.name ?? key.id).join(", ")}`) : null,
      login === own ? null : h("div", { class: "actions" }, state, reset, signOut, button("Delete", { class: "ghost risky", icon: "trash", onclick: () => remove(id, login) }))),
    h("section", { class: "card" }, h("h2", null, "Events"), h("ol", { class: "events" }, ...eventItems(events))));
}

/** @param {Key} key */
function keyRow(key) {
  const badge = h("span");
  showState(badge, stateOf(key));
  return h("li", { class: "row account-row" }, h("div", { class: "key-name" }, h("a", { href: `#/admin/keys/${key.id}` }, key.name), h("code", null, key.hint)),
    h("span", null, badge), h("span", { class: "hint" }, `${number(key.used_today)} of ${number(key.daily_limit)} today`));
}

/**
 * @param {string} login
 * @param {(reason: string) => Promise<void>} act
 */
function suspend(login, act) {
  const reason = h("input", { id: "reason", name: "reason", required: true, maxlength: 200, autocomplete: "off" });
  const cancel = button("Cancel", { class: "quiet", onclick: () => dialog.close() });
  const form = formOf([h("p", null, "Its keys get 403 within 2 seconds. Its owner can sign in and sees the reason, but can change nothing."), field("Reason", reason, "The owner sees it.")],
    [cancel, button("Suspend", { class: "danger", type: "submit" })], async () => {
      await act(reason.value);
      dialog.close();
      toast(`Suspended ${login}`);
    });
  const dialog = open(`Suspend ${login}?`, [form]);
  reason.focus();
}

/**
 * @param {string} id
 * @param {string} login
 */
function remove(id, login) {
  const typed = h("input", { id: "delete-login", name: "login", required: true, autocomplete: "off", autocapitalize: "none", spellcheck: "false" });
  const cancel = button("Cancel", { class: "quiet", onclick: () => dialog.close() });
  const form = formOf([h("p", null, "The account, its keys and its sessions are deleted. This can't be undone."), field(`Type ${login} to confirm`, typed)],
    [cancel, button("Delete account", { class: "danger", type: "submit" })], async () => {
      await call("post", "/api/v1/admin/accounts/{id}/delete", { id, body: { login: typed.value } });
      dialog.close();
      toast(`Deleted ${login}`);
      location.hash = "#/admin";
    });
  const dialog = open(`Delete ${login} permanently?`, [form]);
  typed.focus();
}

/**
 * @param {string} id
 * @param {() => Promise<void>} refresh
 */
export async function adminKeyPage(id, refresh) {
  const { account, key, usage, events } = await call("get", "/api/v1/admin/keys/{id}", { id });
  const [badge, meter, chart] = [h("span"), todayMeter(), monthChart()];
  showState(badge, stateOf(key));
  meter.update(key, key.name);
  chart.update(lastDays(usage, key.used_today));
  const deactivate = button("Deactivate", { class: "ghost", icon: "stop", disabled: key.state === "inactive", onclick: () => confirm({
    title: `Deactivate “${key.name}”?`, action: "Deactivate", danger: true, done: `Deactivated “${key.name}”`, text: "Requests with this key get 403 until its owner reactivates it.",
  }, async () => {
    await call("post", "/api/v1/admin/keys/{id}/deactivate", { id });
    await refresh();
  }) });
  return h("div", { class: "key-page" },
    h("a", { class: "back", href: `#/admin/accounts/${account}` }, "← The account"),
    h("div", { class: "card-head" }, h("h1", { tabindex: -1 }, key.name), badge),
    h("p", { class: "facts" }, h("code", { class: "key-hint" }, key.hint), h("span", { class: "scope", title: "Scope" }, key.scope), h("span", null, `created ${date(key.created_at)}`),
      key.expires_at ? h("span", null, `expires ${timestamp(key.expires_at * 1000)}`) : null),
    h("section", { class: "card numbers", "aria-label": "Usage" }, h("div", null, meter.element), chart.element),
    h("section", { class: "card", "aria-label": "Actions" },
      h("div", { class: "actions" }, button("Set daily limit", { class: "ghost", icon: "pencil", onclick: () => setLimit(id, key.daily_limit, refresh) }), deactivate)),
    h("section", { class: "card" }, h("h2", null, "Events"), h("ol", { class: "events" }, ...eventItems(events))));
}

/**
 * @param {string} id
 * @param {number} limit
 * @param {() => Promise<void>} refresh
 */
function setLimit(id, limit, refresh) {
  const value = h("input", { id: "limit", name: "limit", type: "number", min: 1, max: 4_294_967_295, value: limit });
  const cancel = button("Cancel", { class: "quiet", onclick: () => dialog.close() });
  const form = formOf([field("Requests per day", value, "Empty: the service's default.")], [cancel, button("Save", { class: "primary", type: "submit" })], async () => {
    if (value.value !== String(limit)) await call("put", "/api/v1/admin/keys/{id}/daily-limit", { id, body: { daily_limit: value.value ? Number(value.value) : undefined } });
    await refresh();
    dialog.close();
    toast("Saved");
  });
  const dialog = open("Set the daily limit", [form]);
  value.select();
}

/** @param {import("./api.js").Schemas["PasswordLink"]} link */
export function showLink({ login, link, expires_in: seconds }) {
  const days = Math.round(seconds / 86_400);
  open(`Link for ${login}`, [h("div", { class: "content" },
    h("p", { class: "note" }, h("span", null, `With this link, ${login} sets a password, once and within ${days ? `${days} days` : `${seconds / 60} minutes`}. Anyone who has it can do so: send it to its owner only.`)),
    copyable("Link", link, "password-link"))], { class: "broad" });
}
