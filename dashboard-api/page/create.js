// Dialogs to create, edit and replace a key. A new key is shown once.
import { call } from "./api.js";
import { announce, button, h, icon, toast } from "./dom.js";
import { field, finish, formOf, open } from "./dialogs.js";
import { timestamp } from "./format.js";

/** @typedef {import("./api.js").Key} Key */
/** @typedef {import("./api.js").Scope} Scope */

/** @type {[Scope, string, string][]} */
const SCOPES = [
  ["ip", "Address", "IP address only."],
  ["geo", "Geo", "Adds location, time zone, currency and network operator."],
  ["full", "Full", "Adds HTTP and TLS details, round-trip time and data center, and flags for VPN and hosting networks."],
];

/** @param {Key} key */
export const hasExpired = (key) => Boolean(key.expires_at && key.expires_at * 1000 <= Date.now());

/** @type {[number, string][]} */
const OVERLAPS = [[0, "Not at all: it stops now"], [3_600, "1 hour"], [86_400, "24 hours"], [604_800, "7 days"]];

/**
 * @param {() => void} onCreated called as soon as the key exists
 * @param {(id: string) => void} onSaved called with the key's ID when its owner has saved it
 */
export function createKey(onCreated, onSaved) {
  const settings = settingsOf();
  const scopes = h("fieldset", { class: "choices" }, h("legend", null, "Scope"), ...SCOPES.map(([scope, title, text]) => choice("scope", scope, title, scope === "full", text)));
  const create = button("Create key", { class: "primary", type: "submit" });
  const cancel = button("Cancel", { class: "quiet", onclick: () => dialog.close() });
  const form = formOf([settings.name, scopes, h("details", { class: "more" }, h("summary", null, "Expiry and allowed web pages"), settings.expiry, settings.origins)], [cancel, create],
    async () => {
      const scope = /** @type {Scope} */ (new FormData(form).get("scope"));
      const body = { name: "", allowed_origins: [], ...settings.changes(), scope };
      const created = await call("post", "/api/v1/keys", { body });
      onCreated();
      dialog.close();
      showSecret(created, onSaved);
    });
  const dialog = open("Create a key", [form]);
  form.querySelector("input")?.focus();
}

/**
 * Changes the name, the expiry and the origins.
 * @param {Key} key
 * @param {() => Promise<void>} refresh
 */
export function editKey(key, refresh) {
  const settings = settingsOf(key);
  const save = button("Save", { class: "primary", type: "submit" });
  const cancel = button("Cancel", { class: "quiet", onclick: () => dialog.close() });
  const form = formOf([settings.name, settings.expiry, settings.origins], [cancel, save], async () => {
    await call("patch", "/api/v1/keys/{id}", { id: key.id, body: settings.changes() });
    await refresh();
    dialog.close();
    toast("Saved");
  });
  const dialog = open("Edit key", [form]);
  form.querySelector("input")?.select();
}

/**
 * Replaces a key by a copy with a new secret.
 * @param {Key} key
 * @param {() => void} onCreated called as soon as the copy exists
 */
export function rotateKey(key, onCreated) {
  const overlaps = h("fieldset", { class: "choices" }, h("legend", null, "How long the old key still works"),
    ...OVERLAPS.map(([seconds, title]) => choice("overlap", seconds, title, seconds === 86_400)));
  const replace = button("Replace key", { class: "primary", type: "submit" });
  const cancel = button("Cancel", { class: "quiet", onclick: () => dialog.close() });
  const form = formOf([
    h("p", null, `You get a new key with the same name, scope, allowed web pages, daily limit and count of today. Together with the old one, ${key.hint}, it counts as one key. If the old one has itself replaced a key, that one is deleted now.`),
    hasExpired(key) ? null : overlaps,
  ], [cancel, replace], async () => {
    const overlap = Number(new FormData(form).get("overlap"));
    const created = await call("post", "/api/v1/keys/{id}/rotate", { id: key.id, body: { overlap } });
    onCreated();
    dialog.close();
    const end = Math.min(key.expires_at ?? Infinity, Math.floor(created.key.created_at / 1000) + overlap) * 1000;
    const old = overlap && end > Date.now() ? `works until ${timestamp(end)}` : "no longer works";
    showSecret(created, (id) => (location.hash = `#/keys/${id}`), `The old key, ${key.hint}, ${old}.`);
  });
  const dialog = open(`Replace “${key.name}”`, [form]);
  /** @type {HTMLElement} */ (form.querySelector("[checked], [type=submit]")).focus();
}

/**
 * The fields of what an owner can change.
 * @param {Key} [key] with the present values
 */
function settingsOf(key) {
  const day = key?.expires_at ? new Date(key.expires_at * 1000).toLocaleDateString("sv") : "";
  const lines = (key?.allowed_origins ?? []).join("\n");
  const name = h("input", {
    id: "key-name", name: "key-name", value: key?.name ?? "", maxlength: 64, required: true, autocomplete: "off", placeholder: "Production website",
  });
  const expiry = h("input", { id: "key-expiry", type: "date", value: day, max: "2100-01-01" });
  const origins = h("textarea", { id: "key-origins", rows: 2, placeholder: "https://www.example.org", spellcheck: "false" }, lines);
  return {
    name: field("Name", name, "For your own reference, for example where you use the key."),
    expiry: field("Expires", expiry, "The last day on which the key works. Leave it empty for no expiry."),
    origins: field("Allowed web pages", origins, "Origins, one per line. They stop other people's web pages, not programs, which can send any origin. Leave it empty to allow all."),
    /** What differs from the present values. */
    changes: () => ({
      ...(name.value !== key?.name && { name: name.value }),
      // The document has no type for null, which removes the expiry.
      ...(expiry.value !== day && { expires_at: /** @type {number} */ (expiry.value ? Math.floor(Date.parse(`${expiry.value}T23:59:59`) / 1000) : null) }),
      ...(origins.value !== lines && { allowed_origins: origins.value.split(/\s+/).filter(Boolean) }),
    }),
  };
}

/**
 * A radio button with a title and a text.
 * @param {string} name
 * @param {string | number} value
 * @param {string} title
 * @param {boolean} checked
 * @param {string} [text]
 */
function choice(name, value, title, checked, text) {
  const id = `${name}-${value}`;
  return h("div", { class: "choice" }, h("input", { type: "radio", name, value, id, checked, "aria-describedby": text && `${id}-text` }),
    h("label", { for: id }, title), text ? h("p", { id: `${id}-text`, class: "hint" }, text) : null);
}

/**
 * Shows the new key until its owner confirms that it is saved: it is never shown again. Escape, a click outside and the end
 * of the session leave the dialog open, and the browser warns before it leaves the page.
 * @param {import("./api.js").Schemas["CreatedKey"]} created
 * @param {(id: string) => void} onSaved
 * @param {string} [text] about the key that it replaces
 */
function showSecret(created, onSaved, text) {
  /** @param {Event} event */
  const warn = (event) => event.preventDefault();
  const done = button("I have saved it", {
    class: "primary", onclick: () => {
      window.removeEventListener("beforeunload", warn);
      finish(dialog);
      onSaved(created.key.id);
    },
  });
  const dialog = open(`Your key “${created.key.name}”`, [
    h("div", { class: "content" },
      h("p", { class: "note" }, icon("alert"), h("span", null, "Copy this key now. You can't see it again.")),
      text ? h("p", { id: "old-key" }, text) : null,
      copyable("API key", created.secret, "secret"),
      copyable("Try it in a terminal", created.curl, "curl"),
      h("div", { class: "buttons" }, done)),
  ], { class: "broad", persistent: true });
  window.addEventListener("beforeunload", warn);
  // Not the button that closes the dialog: a second Enter in the form before this dialog would press it.
  dialog.querySelector("button")?.focus();
}

/**
 * @param {string} label
 * @param {string} text
 * @param {string} id
 */
export function copyable(label, text, id) {
  const code = h("code", { id, tabindex: 0, role: "group", "aria-label": label }, text);
  const copy = button("Copy", { icon: "copy", class: "ghost copy", "aria-label": `Copy: ${label}`, onclick: () => copyText(text, code, copy) });
  return h("div", { class: "copyable" }, h("div", { class: "copy-row" }, h("p", { class: "label" }, label), copy), code);
}

/**
 * @param {string} text
 * @param {HTMLElement} code
 * @param {HTMLButtonElement} copy
 */
async function copyText(text, code, copy) {
  const label = copy.querySelector("span");
  let result = "Copied";
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // Browsers allow clipboard access on HTTPS and localhost only. Elsewhere, select the text for the user to copy.
    getSelection()?.selectAllChildren(code);
    result = "Selected";
  }
  announce(result);
  if (!label) return;
  label.textContent = result;
  setTimeout(() => (label.textContent = "Copy"), 2000);
}
