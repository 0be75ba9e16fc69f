// Formats numbers and times.
import { h } from "./dom.js";

const NUMBER = new Intl.NumberFormat("en");
const AGO = new Intl.RelativeTimeFormat("en", { numeric: "auto" });
const DAY = new Intl.DateTimeFormat("en", { day: "numeric", month: "short", timeZone: "UTC" });
const DATE = new Intl.DateTimeFormat("en", { day: "numeric", month: "short", year: "numeric" });
const TIMESTAMP = new Intl.DateTimeFormat("en", { dateStyle: "medium", timeStyle: "medium" });

/** @param {number} value */
export const number = (value) => NUMBER.format(value);

/** @param {string} day `YYYY-MM-DD` */
export const shortDay = (day) => DAY.format(new Date(`${day}T00:00:00Z`));

/** @param {number} at Unix time in milliseconds */
export const date = (at) => DATE.format(at);

/** @param {number} at */
export const timestamp = (at) => TIMESTAMP.format(at);

/** Today in UTC, as `YYYY-MM-DD`. */
export const today = () => new Date().toISOString().slice(0, 10);

/**
 * @param {number} at
 * @param {number} now
 */
export function ago(at, now = Date.now()) {
  const seconds = Math.round((at - now) / 1000);
  /** @type {[number, Intl.RelativeTimeFormatUnit][]} */
  const units = [[86_400, "day"], [3_600, "hour"], [60, "minute"]];
  for (const [size, unit] of units) {
    if (Math.abs(seconds) >= size) return AGO.format(Math.trunc(seconds / size), unit);
  }
  return Math.abs(seconds) < 10 ? "just now" : AGO.format(seconds, "second");
}

/**
 * Creates a relative time such as “5 minutes ago”, with the exact time as its tooltip. `refreshTimes` updates it.
 * @param {number} at
 */
export function time(at) {
  return h("time", { datetime: new Date(at).toISOString(), title: timestamp(at), "data-at": at }, ago(at));
}

/** @param {ParentNode} root */
export function refreshTimes(root) {
  for (const element of root.querySelectorAll("time[data-at]")) {
    element.textContent = ago(Number(element.getAttribute("data-at")));
  }
}

/** @param {import("./api.js").Schemas["Delivery"]} [delivery] the last attempt to deliver a notice */
export function lastDelivery(delivery) {
  return delivery ? h("p", { class: "hint last-delivery" }, `Last delivery ${ago(delivery.at)}: ${delivery.error ?? "delivered"}`) : null;
}

/** Time until the daily quotas reset, at midnight UTC. */
export function untilMidnight(now = Date.now()) {
  const minutes = Math.ceil((86_400_000 - (now % 86_400_000)) / 60_000);
  return minutes >= 60 ? `${Math.floor(minutes / 60)} h ${minutes % 60} min` : `${minutes} min`;
}
