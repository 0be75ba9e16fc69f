// Dialogs and forms. Native <dialog> elements keep the focus inside, close on Escape and make the rest of the page inert.
import { button, focusMain, h, icon, toast } from "./dom.js";
import { errorMessage } from "./api.js";

/** Return value of a persistent dialog that may close. */
const DONE = "done";

let count = 0;

/**
 * Opens a dialog, which is removed from the page when it closes. A persistent dialog closes only by `finish`.
 * @param {string} title
 * @param {import("./dom.js").Child[]} content
 * @param {{class?: string, persistent?: boolean}} [options]
 */
export function open(title, content, options = {}) {
  const { persistent = false } = options;
  const id = `dialog-${++count}`;
  const close = h("button", { type: "button", class: "icon-button", "aria-label": "Close", onclick: () => dialog.close() }, icon("close"));
  const dialog = h("dialog", { class: options.class ?? "", "aria-labelledby": id, closedby: persistent ? "none" : null },
    h("div", { class: "dialog-head" }, h("h2", { id }, title), persistent ? null : close), ...content,
    h("p", { class: "announcements visually-hidden", role: "status" }));
  if (persistent) dialog.setAttribute("data-persistent", "");
  else closeOnPressOutside(dialog);
  dialog.addEventListener("close", () => {
    if (persistent && dialog.returnValue !== DONE) {
      // Browsers without `closedby` close a dialog on a second Escape, whatever the page does.
      dialog.showModal();
      return;
    }
    dialog.remove();
    // The browser returns the focus to the button that opened the dialog, unless that is gone.
    if (!document.activeElement || document.activeElement === document.body) focusMain();
  });
  document.body.append(dialog);
  dialog.showModal();
  return dialog;
}

/**
 * Closes a persistent dialog.
 * @param {HTMLDialogElement} dialog
 */
export function finish(dialog) {
  dialog.close(DONE);
}

/** Closes all dialogs that are not persistent. */
export function closeAll() {
  for (const dialog of document.querySelectorAll("dialog")) if (!dialog.hasAttribute("data-persistent")) dialog.close();
}

/**
 * Closes the dialog on a click that starts and ends outside. Selecting text often ends a drag there, which browsers report
 * as a click on the dialog.
 * @param {HTMLDialogElement} dialog
 */
function closeOnPressOutside(dialog) {
  /** @param {MouseEvent} event */
  const isOutside = (event) => {
    const box = dialog.getBoundingClientRect();
    const inside = event.clientX >= box.left && event.clientX <= box.right && event.clientY >= box.top && event.clientY <= box.bottom;
    return event.target === dialog && !inside;
  };
  let pressedOutside = false;
  dialog.addEventListener("pointerdown", (event) => (pressedOutside = isOutside(event)));
  dialog.addEventListener("click", (event) => {
    if (pressedOutside && isOutside(event)) dialog.close();
  });
}

/**
 * Prompts for confirmation, then calls `act`, which may return the element to focus. If it fails, the dialog stays open
 * and shows the error.
 * @param {{title: string, text: string, action: string, danger?: boolean, done: string}} options `done` is shown after success
 * @param {() => Promise<HTMLElement | void>} act
 */
export function confirm(options, act) {
  const submit = button(options.action, { class: options.danger ? "danger" : "primary", type: "submit" });
  const cancel = button("Cancel", { class: "quiet", onclick: () => dialog.close() });
  const form = formOf([h("p", null, options.text)], [cancel, submit], async () => {
    const target = await act();
    dialog.close();
    target?.focus();
    toast(options.done);
  });
  const dialog = open(options.title, [form]);
  cancel.focus();
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
 * @param {HTMLInputElement | HTMLTextAreaElement} input
 * @param {string} [hint]
 */
export function field(label, input, hint) {
  if (hint) input.setAttribute("aria-describedby", `${input.id}-hint`);
  return h("div", { class: "field" }, h("label", { for: input.id }, label), input,
    hint ? h("p", { class: "hint", id: `${input.id}-hint` }, hint) : null);
}
