// Charts of a key: a bar per day for the last 30 days, and a meter of today's usage against the limit. Both are updated in
// place.
import { h, setAttribute, setText, svg } from "./dom.js";
import { number, shortDay, untilMidnight } from "./format.js";

/** @typedef {import("./api.js").DayUsage} DayUsage */
/** @typedef {import("./api.js").Key} Key */

const DAYS = 30;
const STEP = 8;
const HEIGHT = 48;

/** @returns {{element: HTMLElement, update: (usage: DayUsage[], today: number) => void}} */
export function monthChart() {
  const total = h("strong");
  const firstDay = h("span");
  const bars = Array.from({ length: DAYS }, (_, i) => {
    const title = svg("title");
    return { title, rect: svg("rect", { x: i * STEP + 1, width: STEP - 2, rx: 1.5 }, title) };
  });
  const drawing = svg("svg", {
    class: "month", viewBox: `0 0 ${DAYS * STEP} ${HEIGHT}`, preserveAspectRatio: "none", role: "img",
  }, ...bars.map((bar) => bar.rect));
  const element = h("figure", { class: "chart" },
    h("figcaption", null, h("span", null, "Last 30 days"), total), drawing, h("p", { class: "hint span" }, firstDay, h("span", null, "Today")));

  /**
   * @param {DayUsage[]} usage oldest first, today last
   * @param {number} today today's count, which may be more recent than the one in `usage`
   */
  function update(usage, today) {
    const days = usage.slice(-DAYS).map((day, i, all) => (i === all.length - 1 ? { ...day, requests: today } : day));
    const sum = days.reduce((sum, day) => sum + day.requests, 0);
    const peak = Math.max(...days.map((day) => day.requests), 1);
    setText(total, number(sum));
    setText(firstDay, days.length ? shortDay(days[0].day) : "");
    setAttribute(drawing, "aria-label", `Requests in the last 30 days: ${number(sum)} in total, ${number(sum ? peak : 0)} on the busiest day`);
    bars.forEach(({ rect, title }, i) => {
      const day = days[i];
      const requests = day?.requests ?? 0;
      const height = requests ? Math.max((requests / peak) * HEIGHT, 4) : 2;
      setAttribute(rect, "class", requests ? (i === days.length - 1 ? "bar today" : "bar") : "bar none");
      setAttribute(rect, "y", HEIGHT - height);
      setAttribute(rect, "height", height);
      setText(title, day ? `${shortDay(day.day)}: ${number(requests)}` : "");
    });
  }

  return { element, update };
}

/**
 * Whether no request is left for today.
 * @param {Key} key
 */
export const isUsedUp = (key) => key.used_today >= key.daily_limit;

/**
 * Today's usage against the limit.
 * @returns {{element: HTMLElement, update: (key: Key, label: string) => void}}
 */
export function todayMeter() {
  const used = h("strong");
  const limit = h("span");
  const filled = h("span", { class: "level" });
  const meter = h("div", { class: "meter", role: "meter", "aria-valuemin": 0 }, filled);
  const hint = h("p", { class: "hint" });
  const element = h("div", { class: "today" }, h("p", { class: "today-text" }, used, " ", limit), meter, hint);

  /**
   * @param {Key} key
   * @param {string} label name of the key, unique on the page
   */
  function update(key, label) {
    const share = key.daily_limit ? Math.min(key.used_today / key.daily_limit, 1) : 1;
    setAttribute(element, "class", `today ${isUsedUp(key) ? "full" : share >= 0.8 ? "high" : ""}`);
    setText(used, number(key.used_today));
    setText(limit, `of ${number(key.daily_limit)} today`);
    // Set through the DOM, because the content security policy forbids style attributes.
    filled.style.width = `${key.used_today ? Math.max(share * 100, 1.5) : 0}%`;
    setAttribute(meter, "aria-label", `Requests today with key ${label}`);
    setAttribute(meter, "aria-valuemax", key.daily_limit);
    setAttribute(meter, "aria-valuenow", Math.min(key.used_today, key.daily_limit));
    setText(hint, isUsedUp(key) ? `Daily limit reached · resets in ${untilMidnight()}`
      : `${number(key.daily_limit - key.used_today)} left · resets in ${untilMidnight()}`);
  }

  return { element, update };
}
