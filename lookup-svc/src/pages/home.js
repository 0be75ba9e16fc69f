"use strict";
// The page is complete without this script, which adds: the address of the other family, copying, and the demo.

const byId = (id) => document.getElementById(id);

const show = (element) => {
  element.hidden = false;
};

/** Shows an element that may be below the visible part of the page. */
const reveal = (element) => {
  show(element);
  element.scrollIntoView({ block: "nearest" });
};

/* The address of the other family, from a host name with addresses of that family only. */

const OTHER_ADDRESS_TIMEOUT_MS = 8000;

async function otherAddress(url, family) {
  const response = await fetch(`${url}ip`, {
    credentials: "omit",
    cache: "no-store",
    signal: AbortSignal.timeout(OTHER_ADDRESS_TIMEOUT_MS),
  });
  if (!response.ok) throw new Error(`status ${response.status}`);
  const address = (await response.text()).trim();
  if (!/^[0-9a-f:.]{2,45}$/i.test(address)) throw new Error("no address");
  if (address.includes(":") !== (family === "ipv6")) throw new Error("an address of another family");
  return address;
}

async function showOtherAddress(row) {
  const { family, url } = row.dataset;
  const name = family === "ipv4" ? "IPv4" : "IPv6";
  const status = document.createElement("span");
  status.setAttribute("role", "status");
  status.textContent = "Checking …";
  row.querySelector("dd").replaceChildren(status);
  try {
    const address = document.createElement("code");
    address.id = "other";
    address.textContent = await otherAddress(url, family);
    status.replaceChildren(address);
    status.after(copyButton(address.id, `Copy ${name} address`));
  } catch {
    status.textContent = `Not found: you seem to have no ${name} connection`;
  }
}

/* Copying */

function copyButton(id, label) {
  const button = document.createElement("button");
  button.type = "button";
  button.className = "ghost";
  button.dataset.copy = id;
  button.setAttribute("aria-label", label);
  button.textContent = "Copy";
  return button;
}

let toastTimer;

function toast(text) {
  byId("toast").textContent = text;
  clearTimeout(toastTimer);
  toastTimer = setTimeout(() => byId("toast").replaceChildren(), 2500);
}

async function copy(id) {
  const source = byId(id);
  try {
    await navigator.clipboard.writeText(source.textContent);
    toast("Copied");
  } catch {
    // Browsers have no clipboard on pages over plain HTTP. The selection can be copied by hand.
    getSelection().selectAllChildren(source);
    toast("Selected: press Ctrl+C or ⌘C to copy");
  }
}

/* The demo */

function link(text, url) {
  const element = document.createElement("a");
  element.href = url;
  element.textContent = text;
  return element;
}

const number = (text) => Number(text).toLocaleString("en-US");

/** "at 1:00 AM (in 5 h)", in the visitor's timezone. */
function describeReset(reset, now) {
  const minutes = Math.max(1, Math.ceil((reset - now / 1000) / 60));
  const rest = minutes < 60 ? `${minutes} min` : `${Math.round(minutes / 60)} h`;
  const time = new Date(reset * 1000).toLocaleTimeString("en-US", { hour: "numeric", minute: "2-digit" });
  return `at ${time} (in ${rest})`;
}

/** The demo's quota as the headers of a response have it. A proxy may remove them: what is missing is undefined. */
function readQuota(headers) {
  const value = (name) => headers.get(`X-RateLimit-${name}`)?.match(/^(\d+)$/)?.[1];
  return { limit: value("Limit"), remaining: value("Remaining"), reset: value("Reset") };
}

function showProblem(...parts) {
  byId("problem").replaceChildren(...parts);
  reveal(byId("problem"));
}

async function tryDemo() {
  const response = await fetch(byId("try").dataset.demo, { cache: "no-store" });
  const { limit, remaining, reset } = readQuota(response.headers);
  const body = await response.json();
  if (response.status === 429) {
    const quota = limit ? `demo quota of ${number(limit)} requests` : "demo quota";
    const end = reset ? `It resets ${describeReset(Number(reset), Date.now())}. ` : "";
    const keyLink = document.querySelector(".try .hint a").href;
    return showProblem(`Today's ${quota} is used up. ${end}`, link("Create a key", keyLink), " for a quota of your own.");
  }
  if (!response.ok) return showProblem(`The request failed: ${body.message ?? response.status}`);
  const isKnown = limit && remaining;
  byId("quota").textContent = isKnown ? `${number(remaining)} of ${number(limit)} demo requests left today.` : "";
  byId("json").textContent = JSON.stringify(body, null, 2);
  reveal(byId("result"));
}

async function onTry() {
  const button = byId("try");
  button.disabled = true;
  byId("problem").hidden = true;
  byId("result").hidden = true;
  try {
    await tryDemo();
  } catch {
    showProblem("The service could not be reached. Try again in a moment.");
  }
  button.disabled = false;
  button.focus({ preventScroll: true });
}

/* The flag. Where the system's fonts have no flags, the emoji would be two letters. */

function hasFlags(emoji) {
  const canvas = document.createElement("canvas");
  canvas.width = canvas.height = 24;
  const context = canvas.getContext("2d", { willReadFrequently: true });
  if (!context) return false;
  context.font = "20px 'Apple Color Emoji', 'Noto Color Emoji', 'Twemoji Mozilla', sans-serif";
  context.textBaseline = "top";
  context.fillText(emoji, 0, 0);
  const { data } = context.getImageData(0, 0, 24, 24);
  // Letters are drawn in black, flags in colors.
  return data.some((value, index) => index % 4 < 2 && Math.abs(value - data[index + 1]) > 40);
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-copy]");
  if (button) copy(button.dataset.copy);
});
byId("try").addEventListener("click", onTry);
document.querySelectorAll("button[hidden]").forEach(show);
document.querySelectorAll("[data-url]").forEach(showOtherAddress);
if (byId("flag") && hasFlags(byId("flag").textContent)) show(byId("flag"));
