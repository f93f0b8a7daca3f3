// Details of single steps, for a timeline that is zoomed in.
(function () {
    "use strict";

    const timeline = window.stallscopeTimeline;

    // When zoomed in: ends of steps, the last rank, its lateness, and the uncertainty of clocks.
    timeline.details = function (draw, scene) {
        const { plot, answer, view } = scene;
        if (!answer || !scene.bars) {
            return;
        }
        const perMs = plot.width / (view.end - view.begin) / 1e3;
        for (let cell = 0; cell < answer.cells; cell++) {
            const [begin, end] = [scene.x(answer.cellBegin[cell]), scene.x(answer.cellEnd[cell])];
            if (end < plot.left || begin > plot.right) {
                continue;
            }
            if (end <= plot.right) {
                timeline.vertical(draw, end, plot.top, plot.bottom, scene.colours.page);
            }
            for (let lane = 0; lane < answer.lanes; lane++) {
                detail(draw, scene, lane, cell, begin, perMs);
            }
        }
    };

    function detail(draw, scene, lane, cell, begin, perMs) {
        const { answer, head, plot } = scene;
        const at = lane * answer.cells + cell;
        const [top, bottom] = scene.laneSpan(lane);
        if (bottom <= plot.top || top >= plot.bottom || isNaN(answer.late[at])) {
            return;
        }
        const own = answer.stages.map((stage) => stage[at]);
        const arrival = own[0] + own[1] + own[2];
        if (!scene.lateness && bottom - top >= 16) {
            labels(draw, scene, [...own, answer.allreduce[cell]], begin, perMs, top, bottom);
        }
        const [first, end] = [answer.edges[lane], answer.edges[lane + 1]];
        const last = answer.last[cell] >= first && answer.last[cell] < end;
        const late = answer.latest[at];
        if (!scene.lateness && head.ranks.length > 1 && late > 0 && (last || late >= head.lateFrom)) {
            // Starts when the reference rank was ready: a group's latest rank can be later than its mean.
            const ready = arrival - answer.late[at];
            const [from, to] = [begin + ready * perMs, begin + (ready + late) * perMs];
            const thick = Math.max(2, Math.min(5, (bottom - top) / 6));
            draw.fillStyle = scene.colour("imbalance");
            draw.fillRect(from, top, Math.max(to - from, 2), thick);
            draw.fillRect(to - 1, top, 2, bottom - top);
            if (last && to - from > 34 && bottom - top >= 30) {
                tag(draw, scene, "last, +" + timeline.amount(late), from, to, top + thick);
            }
        }
        const off = end - first === 1 ? head.clock[first] : 0;
        if (off && off * perMs >= 2 && bottom - top >= 8) {
            whisker(draw, scene, begin + arrival * perMs, off * perMs, (top + bottom) / 2);
        }
    }

    // Marks pauses at the lower edge of their lanes, at every zoom.
    timeline.pauses = function (draw, scene) {
        const { plot, answer, head, view } = scene;
        if (!answer) {
            return;
        }
        draw.fillStyle = scene.colours.text;
        for (const [begin, end, row] of head.pauses) {
            const lane = begin < view.end && end > view.begin ? timeline.laneOf(answer, row) : -1;
            if (lane < 0) {
                continue;
            }
            const [top, bottom] = scene.laneSpan(lane);
            if (bottom > plot.top && top < plot.bottom) {
                const tall = Math.max(2, Math.min(5, (bottom - top) / 6));
                const from = scene.x(begin);
                draw.fillRect(from, bottom - tall, Math.max(scene.x(end) - from, 2), tall);
            }
        }
    };

    // The pauses of a lane's ranks within a cell, by kind: how many, and their milliseconds in it.
    timeline.pausesIn = function (head, answer, lane, cell) {
        const [from, to] = [answer.cellBegin[cell], answer.cellEnd[cell]];
        const sums = head.pauseNames.map(() => ({ count: 0, ms: 0 }));
        for (const [begin, end, row, kind] of head.pauses) {
            const inside = Math.min(end, to) - Math.max(begin, from);
            if (inside > 0 && row >= answer.edges[lane] && row < answer.edges[lane + 1]) {
                sums[kind].count += 1;
                sums[kind].ms += inside * 1e3;
            }
        }
        return sums;
    };

    function tag(draw, scene, words, from, to, y) {
        const room = draw.measureText(words).width + 8;
        if (room <= to - from) {
            draw.fillStyle = scene.colour("imbalance");
            draw.fillRect(to - room, y, room, 15);
            timeline.text(draw, words, to - room + 4, y + 8, scene.ink("imbalance"));
        }
    }

    function labels(draw, scene, own, begin, perMs, top, bottom) {
        let time = 0;
        own.forEach(function (length, index) {
            const [from, to] = [begin + time * perMs, begin + (time + length) * perMs];
            time += length;
            const name = scene.head.stages[index];
            const [left, right] = [Math.max(from, scene.plot.left), Math.min(to, scene.plot.right)];
            const short = index === 3 ? "waiting" : index === 4 ? "allreduce" : name;
            for (const words of [short + " " + timeline.amount(length), timeline.amount(length)]) {
                if (right - left > draw.measureText(words).width + 10) {
                    timeline.text(draw, words, left + 5, (top + bottom) / 2, scene.ink(name));
                    return;
                }
            }
        });
    }

    function whisker(draw, scene, x, half, y) {
        draw.strokeStyle = scene.colours.text;
        draw.beginPath();
        draw.moveTo(x - half, y);
        draw.lineTo(x + half, y);
        for (const end of [x - half, x + half]) {
            draw.moveTo(end, y - 3);
            draw.lineTo(end, y + 3);
        }
        draw.stroke();
    }
})();
