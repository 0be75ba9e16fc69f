// Charts of a key: a bar per day for the last 30 days, and a meter of today's usage against the limit.
import { h, svg } from "./dom.js";
import { number, shortDay, untilMidnight } from "./format.js";

/** @typedef {import("./api.js").DayUsage} DayUsage */
/** @typedef {import("./api.js").Key} Key */

const DAYS = 30;
const STEP = 8;
const HEIGHT = 48;

/**
 * @param {DayUsage[]} usage oldest first, today last
 * @param {number} today today's count, which may be more recent than the one in `usage`
 */
export function monthChart(usage, today) {
  const days = usage.slice(-DAYS).map((day, i, all) => (i === all.length - 1 ? { ...day, requests: today } : day));
  const total = days.reduce((sum, day) => sum + day.requests, 0);
  const peak = Math.max(...days.map((day) => day.requests), 1);
  const label = `Requests in the last 30 days: ${number(total)} in total, ${number(total ? peak : 0)} on the busiest day`;
  const drawing = svg("svg", {
    class: "month", viewBox: `0 0 ${DAYS * STEP} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": label,
  }, ...days.map((day, i) => bar(day, i, peak, i === days.length - 1)));
  return h("figure", { class: "chart" },
    h("figcaption", null, h("span", null, "Last 30 days"), h("strong", null, number(total))), drawing,
    h("p", { class: "hint span" }, h("span", null, days.length ? shortDay(days[0].day) : ""), h("span", null, "Today")));
}

/**
 * @param {DayUsage} day
 * @param {number} index
 * @param {number} peak
 * @param {boolean} isToday
 */
function bar(day, index, peak, isToday) {
  const height = day.requests ? Math.max((day.requests / peak) * HEIGHT, 4) : 2;
  const kind = day.requests ? (isToday ? "bar today" : "bar") : "bar none";
  return svg("rect", { class: kind, x: index * STEP + 1, y: HEIGHT - height, width: STEP - 2, height, rx: 1.5 },
    svg("title", null, `${shortDay(day.day)}: ${number(day.requests)}`));
}

/**
 * Today's usage against the limit.
 * @param {Key} key
 */
export function todayMeter(key) {
  const share = Math.min(key.used_today / key.daily_limit, 1);
  const level = share >= 1 ? "full" : share >= 0.8 ? "high" : "";
  const filled = h("span", { class: "level" });
  // Set through the DOM, because the content security policy forbids style attributes.
  filled.style.width = `${key.used_today ? Math.max(share * 100, 1.5) : 0}%`;
  return h("div", { class: `today ${level}` },
    h("p", { class: "today-text" }, h("strong", null, number(key.used_today)), ` of ${number(key.daily_limit)} today`),
    h("div", {
      class: "meter", role: "meter", "aria-label": `Requests today with key ${key.name}`,
      "aria-valuemin": 0, "aria-valuemax": key.daily_limit, "aria-valuenow": Math.min(key.used_today, key.daily_limit),
    }, filled),
    h("p", { class: "hint" }, share >= 1 ? `Daily limit reached · resets in ${untilMidnight()}`
      : `${number(key.daily_limit - key.used_today)} left · resets in ${untilMidnight()}`));
}
