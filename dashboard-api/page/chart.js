// Charts of a key: a bar per day for the last 30 days, small in the list and with an axis on the key's page, and a meter of
// today's usage against the limit. All are updated in place.
import { h, setAttribute, setText, svg } from "./dom.js";
import { number, shortDay, untilMidnight } from "./format.js";

/** @typedef {import("./api.js").DayUsage} DayUsage */
/** @typedef {import("./api.js").Key} Key */

const DAYS = 30;
const STEP = 8;
const HEIGHT = 48;

/**
 * The last 30 days, oldest first.
 * @param {DayUsage[]} usage
 * @param {number} today today's count, which may be more recent than the one in `usage`
 */
export const lastDays = (usage, today) =>
  usage.slice(-DAYS).map((day, i, all) => (i === all.length - 1 ? { ...day, requests: today } : day));

/**
 * A bar per day, without an axis.
 * @returns {{element: SVGElement, update: (days: DayUsage[], top?: number) => void}} `top` is the count of a bar of full height
 */
export function dayBars() {
  const bars = Array.from({ length: DAYS }, (_, i) => svg("rect", { x: i * STEP + 1, width: STEP - 2, rx: 1.5 }));
  const element = svg("svg", { class: "month", viewBox: `0 0 ${DAYS * STEP} ${HEIGHT}`, preserveAspectRatio: "none", role: "img" }, ...bars);
  return {
    element, update: (days, top) => {
      const sum = days.reduce((sum, day) => sum + day.requests, 0);
      const peak = Math.max(...days.map((day) => day.requests));
      setAttribute(element, "aria-label", `Requests in the last 30 days: ${number(sum)} in total, ${number(peak)} on the busiest day`);
      bars.forEach((bar, i) => {
        const requests = days[i]?.requests ?? 0;
        const height = requests ? Math.max((requests / (top ?? peak)) * HEIGHT, 3) : 1.5;
        setAttribute(bar, "class", requests ? (i === days.length - 1 ? "bar today" : "bar") : "bar none");
        setAttribute(bar, "y", HEIGHT - height);
        setAttribute(bar, "height", height);
      });
    },
  };
}

/**
 * The chart with an axis. A range input on top of the bars selects a day by pointer, touch or keyboard, and its value is
 * shown.
 * @returns {{element: HTMLElement, update: (days: DayUsage[]) => void}}
 */
export function monthChart() {
  /** @type {DayUsage[]} */
  let days = [];
  const bars = dayBars();
  const value = h("strong");
  const [top, middle, first, center] = [h("span"), h("span"), h("span"), h("span")];
  const select = h("input", { type: "range", min: 0, max: DAYS - 1, value: DAYS - 1, class: "days", "aria-label": "Day" });
  const element = h("figure", { class: "chart" },
    h("figcaption", null, h("span", null, "Last 30 days"), value),
    h("div", { class: "plot" }, h("div", { class: "axis", "aria-hidden": "true" }, top, middle, h("span", null, "0")), bars.element, select),
    h("p", { class: "hint span", "aria-hidden": "true" }, first, center, h("span", null, "Today")));
  const show = () => {
    const day = days[Number(select.value)];
    const text = day ? `${shortDay(day.day)}: ${number(day.requests)} ${day.requests === 1 ? "request" : "requests"}` : "";
    setText(value, text);
    setAttribute(select, "aria-valuetext", text);
  };
  select.addEventListener("input", show);
  select.addEventListener("pointermove", (event) => {
    select.value = String(Math.floor((event.offsetX / select.clientWidth) * DAYS));
    show();
  });

  return {
    element, update: (next) => {
      days = next;
      const scale = axisTop(Math.max(...days.map((day) => day.requests)));
      bars.update(days, scale);
      setText(top, number(scale));
      setText(middle, number(scale / 2));
      setText(first, shortDay(days[0].day));
      setText(center, shortDay(days[DAYS / 2].day));
      show();
    },
  };
}

/**
 * The lowest round number that is at least `peak`, and even.
 * @param {number} peak
 */
function axisTop(peak) {
  const unit = 10 ** Math.floor(Math.log10(Math.max(peak, 2)));
  return [1, 2, 4, 6, 8, 10].map((factor) => factor * unit).find((top) => top >= peak && top % 2 === 0) ?? peak;
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
  const element = h("div", { class: "today" }, h("p", { class: "today-text" }, used, " ", limit, h("span", { class: "per-day" }, " today")), meter, hint);

  /**
   * @param {Key} key
   * @param {string} label name of the key, unique on the page
   */
  function update(key, label) {
    const share = key.daily_limit ? Math.min(key.used_today / key.daily_limit, 1) : 1;
    setAttribute(element, "class", `today ${isUsedUp(key) ? "full" : share >= 0.8 ? "high" : ""}`);
    setText(used, number(key.used_today));
    setText(limit, `of ${number(key.daily_limit)}`);
    // Set through the DOM, because the content security policy forbids style attributes.
    filled.style.width = `${key.used_today ? Math.max(share * 100, 1.5) : 0}%`;
    setAttribute(meter, "aria-label", `Requests today with key ${label}`);
    setAttribute(meter, "aria-valuemax", key.daily_limit);
    setAttribute(meter, "aria-valuenow", Math.min(key.used_today, key.daily_limit));
    setText(hint, `${isUsedUp(key) ? "Daily limit reached" : `${number(key.daily_limit - key.used_today)} left`} · resets in ${untilMidnight()}`);
  }

  return { element, update };
}
