// Machine metrics: one gauge below the lanes, on the same axis.
(function () {
    "use strict";

    const timeline = (window.stallscopeTimeline = window.stallscopeTimeline || {});
    const GAP = 10;
    const HEIGHT = 52;
    const LINE = 14;

    // The height of the gauge below the lanes; 0 without metrics.
    timeline.gaugeHeight = (head) => (head.gauges.length ? GAP + HEIGHT + 4 : 0);

    // Its position: [top, bottom].
    timeline.gaugeSpan = (plot) => [plot.bottom + GAP, plot.bottom + GAP + HEIGHT];

    const measures = (answer, gauge) => Boolean(answer && gauge && answer.gauge === gauge.key);

    function reading(gauge, value) {
        const number = timeline.digits(value * gauge.factor);
        return gauge.unit === "%" ? number + "%" : (number + " " + gauge.unit).trim();
    }

    // The value at a time as a sentence; empty if the answer has no such metric.
    timeline.gaugeSentence = function (answer, gauge, time) {
        if (!measures(answer, gauge)) {
            return "";
        }
        const count = answer.mean.length;
        const share = (time - answer.begin) / (answer.end - answer.begin);
        const at = Math.min(Math.max(Math.floor(share * count), 0), count - 1);
        const name = gauge.title + (gauge.of ? " of " + gauge.of : "");
        if (isNaN(answer.mean[at])) {
            return name + ": not measured here.";
        }
        const [low, mean, high] = [answer.low[at], answer.mean[at], answer.high[at]];
        const range = " (from " + reading(gauge, low) + " to " + reading(gauge, high) + ")";
        return name + ": " + reading(gauge, mean) + (low === high ? "" : range) + ".";
    };

    // Runs of equal columns with values: [first, end].
    timeline.gaugeRuns = function (answer) {
        const { low, mean, high } = answer;
        const runs = [];
        for (let at = 0; at < mean.length; at++) {
            if (isNaN(mean[at])) {
                continue;
            }
            const last = runs.at(-1);
            const equal =
                last &&
                last[1] === at &&
                low[at] === low[at - 1] &&
                mean[at] === mean[at - 1] &&
                high[at] === high[at - 1];
            if (equal) {
                last[1] = at + 1;
            } else {
                runs.push([at, at + 1]);
            }
        }
        return runs;
    };

    timeline.gauge = function (draw, scene, gauge, time) {
        if (!gauge) {
            return;
        }
        const { plot, answer, colours } = scene;
        const [top, bottom] = timeline.gaugeSpan(plot);
        draw.fillStyle = colours.lane;
        draw.fillRect(plot.left, top, plot.width, HEIGHT);
        draw.fillStyle = colours.line;
        draw.fillRect(plot.left, top + HEIGHT / 2, plot.width, 1);
        scales(draw, scene, gauge, top, bottom);
        if (measures(answer, gauge)) {
            draw.save();
            draw.beginPath();
            draw.rect(plot.left, top, plot.width, HEIGHT);
            draw.clip();
            values(draw, scene, gauge, bottom);
            draw.restore();
        }
        if (time !== null && time >= scene.view.begin && time <= scene.view.end) {
            draw.fillStyle = colours.text;
            draw.fillRect(Math.round(scene.x(time)), top, 1, HEIGHT);
        }
    };

    function values(draw, scene, gauge, bottom) {
        const { answer, colours } = scene;
        const apart = (answer.end - answer.begin) / answer.mean.length;
        const short = (value) => Math.round(10 * value) / 10;
        const x = (at) => short(scene.x(answer.begin + at * apart));
        const y = (value) => short(bottom - (Math.max(value, 0) / gauge.top) * (HEIGHT - 2) - 1);
        const runs = timeline.gaugeRuns(answer);
        draw.fillStyle = colours.range;
        draw.beginPath();
        for (const [first, end] of runs) {
            const [left, high, low] = [x(first), y(answer.high[first]), y(answer.low[first])];
            if (low > high) {
                draw.rect(left, high, Math.max(short(x(end) - left), 1), short(low - high));
            }
        }
        draw.fill();
        draw.strokeStyle = colours.text;
        draw.lineWidth = 1.5;
        draw.beginPath();
        let last = -1;
        for (const [first, end] of runs) {
            const level = y(answer.mean[first]);
            if (last === first) {
                draw.lineTo(x(first), level);
            } else {
                draw.moveTo(x(first), level);
            }
            draw.lineTo(Math.max(x(end), x(first) + 1), level);
            last = end;
        }
        draw.stroke();
        draw.lineWidth = 1;
    }

    function scales(draw, scene, gauge, top, bottom) {
        const { plot, colours } = scene;
        const x = plot.left - 6;
        draw.textBaseline = "middle";
        draw.fillStyle = colours.dimmed;
        draw.textAlign = "right";
        const highest = reading(gauge, gauge.top);
        draw.fillText(highest, x, top + 6);
        draw.fillText("0", x, bottom - 6);
        if (scene.narrow) {
            return;
        }
        const room = x - Math.max(draw.measureText(highest).width, 12) - 10;
        draw.textAlign = "left";
        const lines = [gauge.title, gauge.of].filter(Boolean);
        lines.forEach(function (words, at) {
            const y = (top + bottom) / 2 + (at - (lines.length - 1) / 2) * LINE;
            draw.fillText(timeline.shortened(draw, words, room), 0, y);
        });
    }

    // Rows of the saved table: ranks and hosts, times, and three values from a column on.
    timeline.gaugeRows = function (answer, gauge, view, columns, from) {
        if (!measures(answer, gauge)) {
            return [];
        }
        const apart = (answer.end - answer.begin) / answer.mean.length;
        const time = (at) => answer.begin + at * apart;
        return timeline
            .gaugeRuns(answer)
            .filter(([first, end]) => time(end) > view.begin && time(first) < view.end)
            .map(function ([first, end]) {
                const row = Array(columns).fill("");
                [row[0], row[5], row[6]] = [gauge.of, time(first).toFixed(6), time(end).toFixed(6)];
                const own = [answer.mean, answer.low, answer.high].map((one) => one[first]);
                row.splice(from, own.length, ...own);
                return row;
            });
    };

    // Heads of the columns of the values.
    timeline.gaugeHeads = function (gauge) {
        const unit = gauge.loggedUnit ? ", " + gauge.loggedUnit : "";
        return ["mean", "least", "greatest"].map((which) => gauge.title + " " + which + unit);
    };
})();
