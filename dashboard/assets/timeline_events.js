// Events from other logs: marks above the lanes, with words.
(function () {
    "use strict";

    const timeline = (window.stallscopeTimeline = window.stallscopeTimeline || {});
    const ABOVE_LANES = 46; // pixels from the marks' middle down to the lanes
    const HALF = 5;
    const NEAR = 8;
    const MOST_TOLD = 5;

    // Room that marks take above the lanes; none where there are none.
    timeline.eventRoom = (head) => (head.events.length ? 20 : 0);

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

    // The events whose marks are at a place, the nearest first.
    timeline.eventsAt = function (scene, x, y) {
        const { plot, head } = scene;
        if (Math.abs(y - (plot.top - ABOVE_LANES)) > NEAR) {
            return [];
        }
        const far = (one) => Math.abs(scene.x(one.at) - x);
        return head.events.filter((one) => far(one) <= NEAR).sort((a, b) => far(a) - far(b));
    };

    // The event that comes next in a direction, from a time or from another event on.
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

    // Lines about events, as many as fit into a box beside the pointer.
    timeline.eventLines = function (events) {
        const told = events.slice(0, MOST_TOLD).map(timeline.eventSentence);
        const more = events.length - told.length;
        return more ? [...told, "and " + timeline.whole(more) + " more: go closer"] : told;
    };

    // Rows for a table of what is seen: who, then nothing but times, then words.
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
