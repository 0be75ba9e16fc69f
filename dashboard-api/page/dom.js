// Creates elements. Strings are always inserted as text nodes, so user input can't become markup.

/** @typedef {Node | string | number | null | undefined | false} Child */
/** @typedef {{[name: string]: string | number | boolean | null | undefined | ((event: any) => void)}} Props */

/**
 * @template {Element} E
 * @param {E} element
 * @param {Props | null} props attributes by name. A function becomes an event listener (`onclick` listens for `click`); `true` sets an empty attribute; `false`, null and undefined are skipped
 * @param {Child[]} children
 * @returns {E}
 */
function fill(element, props, children) {
  for (const [name, value] of Object.entries(props ?? {})) {
    if (typeof value === "function") element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, String(value));
  }
  for (const child of children) {
    if (child !== null && child !== undefined && child !== false) {
      element.append(child instanceof Node ? child : String(child));
    }
  }
  return element;
}

/**
 * Creates an HTML element.
 * @template {keyof HTMLElementTagNameMap} T
 * @param {T} tag
 * @param {Props | null} [props]
 * @param {Child[]} children
 * @returns {HTMLElementTagNameMap[T]}
 */
export function h(tag, props = null, ...children) {
  return fill(document.createElement(tag), props, children);
}

/**
 * Creates an SVG element.
 * @template {keyof SVGElementTagNameMap} T
 * @param {T} tag
 * @param {Props | null} [props]
 * @param {Child[]} children
 * @returns {SVGElementTagNameMap[T]}
 */
export function svg(tag, props = null, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), props, children);
}

const ICONS = {
  plus: "M8 3.250v9.500M3.250 8h9.500",
  play: "M5 3.500l7.500 4.500L5 12.500z",
  pause: "M5.500 3.500v9M10.500 3.500v9",
  stop: "M4 8a4 4 0 1 0 8 0 4 4 0 1 0-8 0M5.200 10.800l5.600-5.600",
  pencil: "M3 13l.7-3L10.500 3.200a1 1 0 0 1 1.400 0l.9.900a1 1 0 0 1 0 1.400L6 12.300z",
  clock: "M2.500 8a5.500 5.500 0 1 0 11 0 5.500 5.500 0 1 0-11 0M8 5v3.200l2 1.300",
  replace: "M3 6.500a5 5 0 0 1 9-1.500M13 9.500a5 5 0 0 1-9 1.500M12.500 2.500V5H10M3.500 13.500V11H6",
  trash: "M3 4.500h10M6.500 4.500V3h3v1.500M4.500 4.500l.6 8.500h5.800l.6-8.500",
  copy: "M6 6h7v7H6zM10 6V3H3v7h3",
  check: "M3 8.500l3.200 3.200L13 5",
  close: "M4 4l8 8M12 4l-8 8",
  alert: "M8 2.500l6 11H2zM8 6.500v3.200M8 11.600v.1",
  key: "M9.500 6.500a3 3 0 1 0-2.800 3L8 10.800h1.500v1.500H11v1.200h2v-2.200L9.300 7.600",
  user: "M5.500 5.500a2.500 2.500 0 1 0 5 0 2.500 2.500 0 1 0-5 0M3 13.500c.6-2.700 2.500-4 5-4s4.400 1.300 5 4",
};

/**
 * Creates an icon, hidden from screen readers.
 * @param {keyof typeof ICONS} name
 */
export function icon(name) {
  return svg("svg", { class: "icon", viewBox: "0 0 16 16", "aria-hidden": "true" }, svg("path", { d: ICONS[name] }));
}

/**
 * @param {string} label
 * @param {Props & {icon?: keyof typeof ICONS}} props
 */
export function button(label, { icon: iconName, ...props }) {
  return h("button", { type: "button", ...props }, iconName ? icon(iconName) : null, h("span", null, label));
}

/**
 * Sets the text of an element whose only child is text. An element that has this text already is left alone, so that a
 * selection in it stays.
 * @param {Element} element
 * @param {string} text
 */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/**
 * Sets an attribute, unless it has this value already.
 * @param {Element} element
 * @param {string} name
 * @param {string | number} value
 */
export function setAttribute(element, name, value) {
  if (element.getAttribute(name) !== String(value)) element.setAttribute(name, String(value));
}

const NOTICE_MS = 4_000;
const ERROR_MS = 10_000;

/**
 * Shows a message at the bottom of the page for 4 seconds. Screen readers announce it.
 * @param {string} text
 */
export function toast(text) {
  showToast("notices", h("p", { class: "toast" }, icon("check"), text), NOTICE_MS);
}

/**
 * Shows an error at the bottom of the page for 10 seconds. Screen readers announce it immediately.
 * @param {string} text
 */
export function errorToast(text) {
  showToast("errors", h("p", { class: "toast error" }, icon("alert"), text), ERROR_MS);
}

/**
 * @param {"notices" | "errors"} region
 * @param {HTMLElement} line
 * @param {number} duration
 */
function showToast(region, line, duration) {
  document.getElementById(region)?.replaceChildren(line);
  setTimeout(() => line.remove(), duration);
}

/**
 * Announces a change to screen readers without showing it. While a dialog is open, screen readers ignore the rest of the
 * page, so the topmost dialog's own region is used.
 * @param {string} text
 */
export function announce(text) {
  const regions = document.querySelectorAll("body > .announcements, dialog[open] .announcements");
  const line = h("span", null, text);
  regions[regions.length - 1]?.replaceChildren(line);
  setTimeout(() => line.remove(), ERROR_MS);
}

/** Focuses the main element of the page: the first field of a sign-in form, else the heading. */
export function focusMain() {
  const target = document.querySelector("main.sign-in input") ?? document.querySelector("main h1");
  if (target instanceof HTMLElement) target.focus();
}
