// Creating a key: its name and scope, then the key itself, shown once.
import { call } from "./api.js";
import { button, h, icon } from "./dom.js";
import { field, formOf, open } from "./dialogs.js";

/** @typedef {import("./api.js").Scope} Scope */

/** @type {[Scope, string, string][]} */
const SCOPES = [
  ["ip", "Address", "The caller's IPv4 or IPv6 address, nothing else."],
  ["geo", "Geo", "Also place, time zone, currency and network operator."],
  ["full", "Full", "Also TLS, HTTP version, round-trip time, proxy and hosting flags."],
];

/**
 * @param {() => void} created called as soon as the key exists
 */
export function createKey(created) {
  const name = h("input", {
    id: "key-name", name: "key-name", maxlength: 64, required: true, autocomplete: "off", placeholder: "Production website",
  });
  const scopes = h("fieldset", { class: "scopes" }, h("legend", null, "What may it see?"), ...SCOPES.map(scopeChoice));
  const create = button("Create key", { class: "primary", type: "submit" });
  const cancel = button("Cancel", { class: "quiet", onclick: () => dialog.close() });
  const form = formOf([field("Name", name, "Only you see it. For example where the key is used."), scopes], [cancel, create],
    async () => {
      const scope = /** @type {Scope} */ (new FormData(form).get("scope"));
      const answer = await call("post", "/api/v1/keys", { body: { name: name.value, scope } });
      created();
      dialog.close();
      showSecret(answer);
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

/** @param {import("./api.js").Schemas["CreatedKey"]} created */
function showSecret(created) {
  const done = button("I have saved it", { class: "primary", onclick: () => dialog.close() });
  const dialog = open(`Your key “${created.key.name}”`, [
    h("div", { class: "content" },
      h("p", { class: "note" }, icon("alert"), h("span", null, "The key is shown only this once. Keep it with your other secrets.")),
      copyable("API key", created.secret, "secret"),
      copyable("Try it in a terminal", created.curl, "curl"),
      h("div", { class: "buttons" }, done)),
  ], { class: "broad" });
  // Escape would lose the key for good: only the button closes.
  dialog.setAttribute("data-keep", "");
  dialog.querySelector(".icon-button")?.remove();
  dialog.addEventListener("cancel", (event) => event.preventDefault());
  done.focus();
}

/**
 * @param {string} label
 * @param {string} text
 * @param {string} id
 */
function copyable(label, text, id) {
  const shown = h("code", { id, tabindex: 0, role: "group", "aria-label": label }, text);
  const copy = button("Copy", { icon: "copy", class: "ghost copy", "aria-label": `Copy: ${label}`, onclick: () => copyText(text, shown, copy) });
  return h("div", { class: "copyable" }, h("div", { class: "copy-row" }, h("p", { class: "label" }, label), copy), shown);
}

/**
 * @param {string} text
 * @param {HTMLElement} shown
 * @param {HTMLButtonElement} copy
 */
async function copyText(text, shown, copy) {
  const label = copy.querySelector("span");
  let result = "Copied";
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // Browsers give the clipboard to HTTPS and localhost only: then it is selected, ready to be copied.
    getSelection()?.selectAllChildren(shown);
    result = "Selected";
  }
  if (!label) return;
  label.textContent = result;
  setTimeout(() => (label.textContent = "Copy"), 2000);
}
