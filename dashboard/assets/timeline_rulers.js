// Draws around and over the lanes: times, steps, names, gaps, marks.
(function () {
    "use strict";

    const timeline = (window.stallscopeTimeline = window.stallscopeTimeline || {});
    const NICE = [1, 2, 5];
    const CLOCK = [15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400];
    const SMALL = 11;

    function nice(least) {
        if (least > 10) {
            return CLOCK.find((one) => one >= least) || Math.ceil(least / 86400) * 86400;
        }
        const power = 10 ** Math.floor(Math.log10(least));
        return (NICE.find((one) => one * power >= least * (1 - 1e-9)) || 10) * power;
    }

    function niceSteps(least) {
        const power = 10 ** Math.floor(Math.log10(Math.max(least, 1)));
        return (NICE.find((one) => one * power >= least) || 10) * power;
    }

    function text(draw, words, x, y, colour, align) {
        draw.fillStyle = colour;
        draw.textAlign = align || "left";
        draw.textBaseline = "middle";
        draw.fillText(words, x, y);
    }

    timeline.text = text;
    timeline.vertical = vertical;

    timeline.shortened = function (draw, words, room) {
        if (draw.measureText(words).width <= room) {
            return words;
        }
        let kept = words;
        while (kept && draw.measureText(kept + "…").width > room) {
            kept = kept.slice(0, -1);
        }
        return kept ? kept + "…" : "";
    };

    function vertical(draw, x, top, bottom, colour, dash) {
        draw.save();
        draw.strokeStyle = colour;
        draw.setLineDash(dash || []);
        draw.beginPath();
        draw.moveTo(Math.round(x) + 0.5, top);
        draw.lineTo(Math.round(x) + 0.5, bottom);
        draw.stroke();
        draw.restore();
    }

    timeline.times = function (draw, scene) {
        const { plot, view, colours } = scene;
        const apart = nice(((view.end - view.begin) / plot.width) * 90);
        const foot = scene.foot;
        const y = foot + 12;
        for (let time = Math.ceil(view.begin / apart) * apart; time <= view.end; time += apart) {
            const x = scene.x(time);
            vertical(draw, x, foot, foot + 4, colours.dimmed);
            const words = timeline.clock(time, apart);
            const half = draw.measureText(words).width / 2;
            if (x - half >= 0 && x + half <= scene.width) {
                text(draw, words, x, y, colours.dimmed, "center");
            }
        }
    };

    // Generations may have trained the same steps.
    function stepsIn(answer) {
        let steps = 0;
        for (let cell = 0; cell < answer.cells; cell++) {
            const begins = cell === 0 || answer.generation[cell] !== answer.generation[cell - 1];
            steps += answer.lastStep[cell] - (begins ? answer.firstStep[cell] - 1 : answer.lastStep[cell - 1]);
        }
        return steps;
    }

    timeline.steps = function (draw, scene) {
        const { plot, answer, colours } = scene;
        const y = plot.top - 9;
        if (!answer) {
            return;
        }
        const shown = stepsIn(answer);
        const apart = niceSteps((shown / plot.width) * 80);
        let free = plot.left - 40;
        for (let cell = 0; cell < answer.cells; cell++) {
            const [first, last] = [answer.firstStep[cell], answer.lastStep[cell]];
            const step = Math.ceil(first / apart) * apart;
            if (step > last) {
                continue;
            }
            const [begin, end] = [scene.x(answer.cellBegin[cell]), scene.x(answer.cellEnd[cell])];
            const x = begin + ((step - first) / (last - first + 1)) * (end - begin);
            if (x < plot.left - 1 || x > plot.right) {
                continue;
            }
            vertical(draw, x, plot.top - 4, plot.top, colours.dimmed);
            const words = (scene.bars ? "step " : "") + timeline.whole(step);
            if (x >= free && x + draw.measureText(words).width <= scene.width) {
                text(draw, words, x + 3, y, colours.dimmed);
                free = x + draw.measureText(words).width + 14;
            }
        }
    };

    // Starts of epochs, and steps where the step time changes for good.
    timeline.flags = function (draw, scene) {
        const { plot, answer, head, colours } = scene;
        const y = plot.top - 25;
        let free = 0;
        const flags = head.changes.map((change) => scene.x(change.at));
        for (const change of head.changes) {
            const x = scene.x(change.at);
            if (x >= plot.left && x <= plot.right) {
                vertical(draw, x, plot.top - 32, plot.bottom, colours.text, [4, 3]);
                draw.fillStyle = colours.text;
                draw.beginPath();
                draw.moveTo(x, plot.top - 33);
                draw.lineTo(x + 8, plot.top - 28);
                draw.lineTo(x, plot.top - 23);
                draw.fill();
            }
        }
        const startInView = answer ? answer.epochs.some(([time]) => scene.x(time) >= plot.left - 1) : true;
        const first = startInView ? -1 : answer.epoch[timeline.cellAfter(answer, scene.view.begin)];
        if (first >= 0) {
            // No epoch starts in view: name the current one.
            text(draw, "epoch " + first, plot.left + 4, y, colours.dimmed);
        }
        for (const [time, epoch] of answer ? answer.epochs : []) {
            const x = scene.x(time);
            const words = "epoch " + epoch;
            if (x >= plot.left - 1 && x <= plot.right) {
                const room = draw.measureText(words).width;
                const hidden = flags.some((flag) => flag > x && flag < x + room + 6);
                if (x >= free && x + room + 4 <= scene.width && !hidden) {
                    vertical(draw, x, plot.top - 32, plot.top, colours.dimmed);
                    text(draw, words, x + 4, y, colours.dimmed);
                    free = x + room + 16;
                }
            }
        }
    };

    // Validation, checkpoints, ends of epochs, and time without records.
    timeline.gaps = function (draw, scene) {
        const { plot, answer, head } = scene;
        for (const [begin, ...parts] of answer ? answer.gaps : []) {
            let time = begin;
            parts.forEach(function (length, index) {
                const [from, to] = [scene.x(time), scene.x(time + length)];
                time += length;
                if (length <= 0 || to < plot.left || from > plot.right) {
                    return;
                }
                const [left, right] = [Math.max(from, plot.left), Math.min(to, plot.right)];
                const name = head.between[index];
                draw.fillStyle = index ? scene.colour(name) : scene.colours.page;
                draw.fillRect(left, plot.top, Math.max(right - left, 1), plot.height);
                const words = index ? head.titles[name] : "no steps";
                if (right - left > draw.measureText(words).width + 12) {
                    const ink = index ? scene.ink(name) : scene.colours.dimmed;
                    text(draw, words, (left + right) / 2, plot.top + plot.height / 2, ink, "center");
                }
            });
        }
    };

    // Names of lanes and hosts; slow ranks are always named.
    timeline.laneNames = function (draw, scene) {
        const { answer, head, plot, colours } = scene;
        const lanes = answer ? answer.lanes : 0;
        const occupied = [];
        const withHosts = hostLanes(scene);
        const rows = (lane) => [answer.edges[lane], answer.edges[lane + 1]];
        const slow = (lane) => slowRows(head, rows(lane)).length > 0;
        const order = [...Array(lanes).keys()].sort((a, b) => slow(b) - slow(a));
        for (const lane of order) {
            const [top, bottom] = scene.laneSpan(lane);
            const y = (Math.max(top, plot.top) + Math.min(bottom, plot.bottom)) / 2;
            if (bottom <= plot.top || top >= plot.bottom) {
                continue;
            }
            const late = slow(lane);
            if (late) {
                draw.fillStyle = scene.colour("imbalance");
                draw.fillRect(plot.left - 4, Math.max(top, plot.top), 3, Math.max(bottom - top, 2));
            }
            if (occupied.some((other) => Math.abs(other - y) < SMALL + 1)) {
                continue;
            }
            occupied.push(y);
            draw.font = (late ? "bold " : "") + scene.font;
            const words = name(head, rows(lane), late, scene.narrow);
            const x = plot.left - 12;
            text(draw, timeline.shortened(draw, words, x), x, y, late ? colours.text : colours.dimmed, "right");
            draw.font = scene.font;
            if (withHosts && !scene.narrow) {
                // A lane of several hosts that has a slow rank shows that rank's host.
                const row = late ? slowRows(head, rows(lane))[0] : rows(lane)[0];
                const host = head.hosts[head.hostOf[row]];
                text(draw, timeline.shortened(draw, host, x - draw.measureText(words).width - 14), 0, y, colours.dimmed);
            }
        }
        if (!withHosts) {
            hosts(draw, scene);
        }
    };

    // Whether each lane contains a whole host, so that its name fits next to the ranks.
    function hostLanes(scene) {
        const { answer, head } = scene;
        const whole = (lane) =>
            head.hostOf[answer.edges[lane + 1]] !== head.hostOf[answer.edges[lane + 1] - 1];
        return (
            Boolean(answer) &&
            answer.edges.length > 2 &&
            answer.edges[1] - answer.edges[0] > 1 &&
            whole(0) &&
            whole(1)
        );
    }

    // The rows of stragglers among those of a lane.
    function slowRows(head, [first, end]) {
        return head.named.filter((row) => row >= first && row < end);
    }

    function name(head, [first, end], late, narrow) {
        if (late) {
            const own = slowRows(head, [first, end]);
            const rank = head.ranks[own[0]];
            // On a phone there is no space for more than a number.
            return narrow ? "▸" + rank : "slow ▸ " + rank + (own.length > 1 ? " +" + (own.length - 1) : "");
        }
        const rank = String(head.ranks[first]);
        if (narrow) {
            return rank;
        }
        if (end - first === 1) {
            return "rank " + rank;
        }
        const last = head.ranks[end - 1];
        // Ranks of a place in the mesh may be far apart.
        return rank + (head.by && last - head.ranks[first] !== end - 1 - first ? ", …, " : "–") + last;
    }

    // Writes each host's name at its first lane if there is space next to the ranks' names.
    function hosts(draw, scene) {
        const { head, plot, colours, view } = scene;
        const shown = Math.min(Math.ceil(view.last), head.ranks.length);
        let free = -Infinity;
        for (let row = Math.max(0, Math.floor(view.first)); row < shown; row++) {
            const begins = row === 0 || head.hostOf[row] !== head.hostOf[row - 1];
            const first = row === Math.floor(view.first);
            if (!begins && !first) {
                continue;
            }
            const y = Math.max(scene.y(row), plot.top);
            if (begins && !first && y >= free) {
                draw.strokeStyle = colours.line;
                draw.beginPath();
                draw.moveTo(0, Math.round(y) - 0.5);
                draw.lineTo(scene.narrow ? plot.left - 8 : plot.left - 84, Math.round(y) - 0.5);
                draw.stroke();
            }
            if (!scene.narrow && y >= free && y + 14 <= plot.bottom + 4) {
                const room = plot.left - 84;
                text(draw, timeline.shortened(draw, head.hosts[head.hostOf[row]], room), 0, y + 8, colours.dimmed);
                free = y + SMALL + 3;
            }
        }
    }

    // The whole run in a strip: step time by stage, late steps, and the view.
    timeline.strip = function (draw, scene) {
        const { head, strip, colours, view } = scene;
        const x = (time) => strip.left + (time / head.span) * strip.width;
        const entries = Object.entries(head.strip.entries);
        const totals = head.strip.begin.map((_, at) => entries.reduce((sum, [, one]) => sum + one[at], 0));
        const sorted = [...totals].sort((a, b) => a - b);
        const most = 1.25 * (sorted[Math.floor(0.98 * (sorted.length - 1))] || 1);
        draw.fillStyle = colours.lane;
        draw.fillRect(strip.left, strip.top, strip.width, strip.height);
        head.strip.begin.forEach(function (begin, at) {
            const [left, right] = [x(begin), x(head.strip.end[at])];
            let y = strip.top + strip.height;
            for (const [name, values] of entries) {
                const height = Math.min((values[at] / most) * strip.height, y - strip.top);
                draw.fillStyle = scene.colour(name === "imbalance" ? "wait" : name);
                draw.fillRect(left, y - height, Math.max(right - left, 0.7), height);
                y -= height;
            }
        });
        for (const [begin, ...parts] of head.gaps) {
            let time = begin;
            parts.forEach(function (length, index) {
                if (index && length > 0) {
                    draw.fillStyle = scene.colour(head.between[index]);
                    draw.fillRect(x(time), strip.top, x(time + length) - x(time), strip.height);
                }
                time += length;
            });
        }
        draw.fillStyle = scene.colour("imbalance");
        for (const [begin] of head.late) {
            draw.fillRect(x(begin) - 0.5, strip.top - 4, 1.5, 4);
        }
        const [from, to] = [x(view.begin), x(view.end)];
        draw.fillStyle = colours.shade;
        draw.fillRect(strip.left, strip.top, from - strip.left, strip.height);
        draw.fillRect(to, strip.top, strip.left + strip.width - to, strip.height);
        draw.strokeStyle = colours.text;
        draw.lineWidth = 1.5;
        draw.strokeRect(from, strip.top - 0.5, Math.max(to - from, 2), strip.height + 1);
        draw.lineWidth = 1;
        if (!scene.narrow) {
            text(draw, "whole run", 0, strip.top + strip.height / 2, colours.dimmed);
        }
    };

    // The selected cell, by pointer or by keys.
    timeline.cursor = function (draw, scene, place, colour, wide) {
        const { answer, plot } = scene;
        if (!answer || !place || place.lane < 0) {
            return;
        }
        const [top, bottom] = scene.laneSpan(place.lane);
        draw.strokeStyle = colour;
        draw.lineWidth = wide;
        if (place.cell >= 0) {
            const from = Math.max(scene.x(answer.cellBegin[place.cell]), plot.left);
            const to = Math.min(scene.x(answer.cellEnd[place.cell]), plot.right);
            draw.strokeRect(from - 1, top - 1, Math.max(to - from, 3) + 2, bottom - top + 2);
        }
        draw.lineWidth = 1;
    };
})();
