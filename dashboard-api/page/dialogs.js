// Dialogues: native ones, so that focus stays inside, Escape closes and the page behind is inert.
import { button, h, icon, toast } from "./dom.js";
import { told } from "./api.js";

let count = 0;

/**
 * Opens a dialogue; it is removed when it closes.
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
 * Asks before something dangerous, and does it; the dialogue stays open with the reason if it fails.
 * @param {{title: string, text: string, action: string, danger?: boolean, done: string}} question
 * @param {() => Promise<unknown>} act
 */
export function confirm(question, act) {
  const act_button = button(question.action, { class: question.danger ? "danger" : "primary", type: "submit" });
  const cancel = button("Cancel", { class: "quiet", onclick: () => dialog.close() });
  const form = formOf([h("p", null, question.text)], [cancel, act_button], async () => {
    await act();
    dialog.close();
    toast(question.done);
  });
  const dialog = open(question.title, [form]);
  cancel.focus();
}

/**
 * Asks for one line of text.
 * @param {{title: string, label: string, value: string, action: string, done: string}} question
 * @param {(text: string) => Promise<unknown>} act
 */
export function ask(question, act) {
  const input = h("input", { id: "asked", name: "asked", value: question.value, maxlength: 64, required: true, autocomplete: "off" });
  const cancel = button("Cancel", { class: "quiet", onclick: () => dialog.close() });
  const save = button(question.action, { class: "primary", type: "submit" });
  const form = formOf([field(question.label, input)], [cancel, save], async () => {
    await act(input.value);
    dialog.close();
    toast(question.done);
  });
  const dialog = open(question.title, [form]);
  input.select();
}

/**
 * A form that shows what went wrong and can't be sent twice at once.
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
      problem.textContent = told(error);
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
