// Dialogs and forms. Native <dialog> elements keep the focus inside, close on Escape and make the rest of the page inert.
import { button, h, icon, toast } from "./dom.js";
import { errorMessage } from "./api.js";

let count = 0;

/**
 * Opens a dialog, which is removed from the page when it closes.
 * @param {string} title
 * @param {import("./dom.js").Child[]} content
 * @param {{class?: string}} [options]
 */
export function open(title, content, options = {}) {
  const id = `dialog-${++count}`;
  const close = h("button", { type: "button", class: "icon-button", "aria-label": "Close", onclick: () => dialog.close() }, icon("close"));
  const dialog = h("dialog", { class: options.class ?? "", "aria-labelledby": id },
    h("div", { class: "dialog-head" }, h("h2", { id }, title), close), ...content);
  dialog.addEventListener("close", () => dialog.remove());
  dialog.addEventListener("click", (event) => {
    if (event.target === dialog && !dialog.hasAttribute("data-keep")) dialog.close();
  });
  document.body.append(dialog);
  dialog.showModal();
  return dialog;
}

/**
 * Prompts for confirmation, then calls `act`. If it fails, the dialog stays open and shows the error.
 * @param {{title: string, text: string, action: string, danger?: boolean, done: string}} options `done` is shown after success
 * @param {() => Promise<unknown>} act
 */
export function confirm(options, act) {
  const submit = button(options.action, { class: options.danger ? "danger" : "primary", type: "submit" });
  const cancel = button("Cancel", { class: "quiet", onclick: () => dialog.close() });
  const form = formOf([h("p", null, options.text)], [cancel, submit], async () => {
    await act();
    dialog.close();
    toast(options.done);
  });
  const dialog = open(options.title, [form]);
  cancel.focus();
}

/**
 * Prompts for one line of text, then calls `act` with it. If it fails, the dialog stays open and shows the error.
 * @param {{title: string, label: string, value: string, action: string, done: string}} options `done` is shown after success
 * @param {(text: string) => Promise<unknown>} act
 */
export function prompt(options, act) {
  const input = h("input", { id: "prompt-input", name: "prompt-input", value: options.value, maxlength: 64, required: true, autocomplete: "off" });
  const cancel = button("Cancel", { class: "quiet", onclick: () => dialog.close() });
  const save = button(options.action, { class: "primary", type: "submit" });
  const form = formOf([field(options.label, input)], [cancel, save], async () => {
    await act(input.value);
    dialog.close();
    toast(options.done);
  });
  const dialog = open(options.title, [form]);
  input.select();
}

/**
 * A form that shows errors and ignores a second submit while the first is in flight.
 * @param {import("./dom.js").Child[]} content
 * @param {HTMLElement[]} buttons
 * @param {() => Promise<void>} submit
 */
export function formOf(content, buttons, submit) {
  const problem = h("p", { class: "problem", role: "alert" });
  const form = h("form", { novalidate: false }, ...content, problem, h("div", { class: "buttons" }, ...buttons));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (form.classList.contains("busy")) return;
    form.classList.add("busy");
    problem.textContent = "";
    try {
      await submit();
    } catch (error) {
      problem.textContent = errorMessage(error);
    } finally {
      form.classList.remove("busy");
    }
  });
  return form;
}

/**
 * @param {string} label
 * @param {HTMLInputElement} input
 * @param {string} [hint]
 */
export function field(label, input, hint) {
  if (hint) input.setAttribute("aria-describedby", `${input.id}-hint`);
  return h("div", { class: "field" }, h("label", { for: input.id }, label), input,
    hint ? h("p", { class: "hint", id: `${input.id}-hint` }, hint) : null);
}
