// Events of other logs: marks above the lanes, with text.
(function () {
    "use strict";

    const timeline = (window.stallscopeTimeline = window.stallscopeTimeline || {});
    const ABOVE_LANES = 46; // pixels from the marks' middle down to the lanes
    const HALF = 5;
    const HIT_DISTANCE = 8;
    const MOST_LINES = 5;

    // The height of the marks above the lanes; 0 without events.
    timeline.eventsHeight = (head) => (head.events.length ? 20 : 0);

    timeline.events = function (draw, scene, chosen) {
        const { plot, head, colours } = scene;
        const y = plot.top - ABOVE_LANES;
        for (const one of head.events) {
            const x = scene.x(one.at);
            const [from, to] = [Math.max(scene.x(one.from), plot.left), Math.min(scene.x(one.to), plot.right)];
            draw.fillStyle = colours.text;
            if (to - from > 1) {
                draw.fillRect(from, y - 1, to - from, 2);
            }
            if (x < plot.left - 1 || x > plot.right) {
                continue;
            }
            const half = one === chosen ? HALF + 2 : HALF;
            draw.beginPath();
            draw.moveTo(x - half, y);
            draw.lineTo(x, y - half);
            draw.lineTo(x + half, y);
            draw.lineTo(x, y + half);
            draw.fill();
            if (one === chosen) {
                draw.fillRect(Math.round(x), y, 1, plot.bottom - y);
            }
        }
        if (head.events.length && !scene.narrow) {
            draw.fillStyle = colours.dimmed;
            draw.textAlign = "left";
            draw.textBaseline = "middle";
            draw.fillText("other logs", 0, y);
        }
    };

    // The events with marks at a point, the nearest first.
    timeline.eventsAt = function (scene, x, y) {
        const { plot, head } = scene;
        if (Math.abs(y - (plot.top - ABOVE_LANES)) > HIT_DISTANCE) {
            return [];
        }
        const distance = (one) => Math.abs(scene.x(one.at) - x);
        return head.events
            .filter((one) => distance(one) <= HIT_DISTANCE)
            .sort((a, b) => distance(a) - distance(b));
    };

    // The next event in a direction, from a time or from another event.
    timeline.nextEvent = function (events, chosen, time, direction) {
        const at = events.indexOf(chosen);
        if (at >= 0) {
            return events[at + direction];
        }
        return direction > 0
            ? events.find((one) => one.at >= time)
            : events.findLast((one) => one.at <= time);
    };

    timeline.eventSentence = function (one) {
        const who = one.who ? " (" + one.who + ")" : "";
        return one.when + ": " + one.words + who + ".";
    };

    // Lines about events for the tooltip.
    timeline.eventLines = function (events) {
        const lines = events.slice(0, MOST_LINES).map(timeline.eventSentence);
        const more = events.length - lines.length;
        return more ? [...lines, "and " + timeline.whole(more) + " more: zoom in"] : lines;
    };

    // Rows of the saved table: ranks and hosts, times, text.
    timeline.eventRows = function (head, view, columns) {
        return head.events
            .filter((one) => one.at >= view.begin && one.at <= view.end)
            .map(function (one) {
                const row = Array(columns).fill("");
                [row[0], row[5], row[6]] = [one.who, one.from.toFixed(6), one.to.toFixed(6)];
                row[columns - 1] = one.words;
                return row;
            });
    };
})();
