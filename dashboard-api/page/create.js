// Dialogs to create a key: first its name and scope, then the new key, shown once.
import { call } from "./api.js";
import { announce, button, h, icon } from "./dom.js";
import { field, finish, formOf, open } from "./dialogs.js";

/** @typedef {import("./api.js").Scope} Scope */

/** @type {[Scope, string, string][]} */
const SCOPES = [
  ["ip", "Address", "IP address only."],
  ["geo", "Geo", "Adds location, time zone, currency and network operator."],
  ["full", "Full", "Adds HTTP and TLS details, round-trip time and data center, and flags for VPN and hosting networks."],
];

/**
 * @param {() => void} onCreated called as soon as the key exists
 * @param {(id: string) => void} onSaved called with the key's ID when its owner has saved it
 */
export function createKey(onCreated, onSaved) {
  const name = h("input", {
    id: "key-name", name: "key-name", maxlength: 64, required: true, autocomplete: "off", placeholder: "Production website",
  });
  const scopes = h("fieldset", { class: "scopes" }, h("legend", null, "Scope"), ...SCOPES.map(scopeChoice));
  const create = button("Create key", { class: "primary", type: "submit" });
  const cancel = button("Cancel", { class: "quiet", onclick: () => dialog.close() });
  const form = formOf([field("Name", name, "For your own reference, for example where you use the key."), scopes], [cancel, create],
    async () => {
      const scope = /** @type {Scope} */ (new FormData(form).get("scope"));
      const created = await call("post", "/api/v1/keys", { body: { name: name.value, scope } });
      onCreated();
      dialog.close();
      showSecret(created, onSaved);
    });
  const dialog = open("Create a key", [form]);
  name.focus();
}

/** @param {[Scope, string, string]} choice */
function scopeChoice([scope, title, text]) {
  const id = `scope-${scope}`;
  return h("div", { class: "choice" },
    h("input", { type: "radio", name: "scope", value: scope, id, checked: scope === "full", "aria-describedby": `${id}-text` }),
    h("label", { for: id }, title), h("p", { id: `${id}-text`, class: "hint" }, text));
}

/**
 * Shows the new key until its owner confirms that it is saved: it is never shown again. Escape, a click outside and the end
 * of the session leave the dialog open, and the browser warns before it leaves the page.
 * @param {import("./api.js").Schemas["CreatedKey"]} created
 * @param {(id: string) => void} onSaved
 */
function showSecret(created, onSaved) {
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
