// Texts of the timeline: numbers, times, and the cell under the pointer.
(function () {
    "use strict";

    const timeline = (window.stallscopeTimeline = window.stallscopeTimeline || {});
    const CAUSES = ["input", "compute", "other"];

    function digits(value) {
        const size = value ? Math.floor(Math.log10(Math.abs(value))) : 0;
        const decimals = Math.min(Math.max(2 - size, 0), 6);
        return value.toLocaleString("en", {
            minimumFractionDigits: decimals,
            maximumFractionDigits: decimals,
        });
    }

    timeline.digits = digits;

    // Milliseconds in a suitable unit: 9.70 ms
    timeline.amount = function (milliseconds) {
        const size = Math.abs(milliseconds);
        if (size < 5e-4) {
            return "0 ms";
        }
        if (size < 0.1) {
            return digits(milliseconds * 1e3) + " µs";
        }
        return size < 1e3 ? digits(milliseconds) + " ms" : digits(milliseconds / 1e3) + " s";
    };

    timeline.whole = (number) => number.toLocaleString("en");

    // A time since the first step, with enough digits for ticks this far apart (seconds): 2:03.45
    timeline.clock = function (seconds, apart) {
        const decimals = apart >= 1 ? 0 : Math.min(6, Math.ceil(-Math.log10(apart) - 1e-9));
        const rounded = Math.max(0, Number(seconds.toFixed(decimals)));
        if (rounded < 60) {
            return rounded.toFixed(decimals) + " s";
        }
        const hours = Math.floor(rounded / 3600);
        const minutes = Math.floor(rounded / 60) % 60;
        const rest = (rounded % 60).toFixed(decimals).padStart(decimals ? decimals + 3 : 2, "0");
        return hours
            ? hours + ":" + String(minutes).padStart(2, "0") + ":" + rest
            : minutes + ":" + rest;
    };

    // Ranks in rows up to the last one; those of a place in the mesh may be far apart.
    timeline.ranksOf = function (head, first, last) {
        const [low, high] = [head.ranks[first], head.ranks[last]];
        return head.by && high - low !== last - first
            ? last - first + 1 + " ranks from " + low + " on"
            : "Ranks " + low + "–" + high;
    };

    timeline.laneName = function (head, answer, lane) {
        const [first, last] = [answer.edges[lane], answer.edges[lane + 1] - 1];
        const host = head.hosts[head.hostOf[first]];
        if (first === last) {
            return { who: "Rank " + head.ranks[first], where: host };
        }
        const hosts = head.hostOf[last] - head.hostOf[first] + 1;
        return {
            who: timeline.ranksOf(head, first, last),
            where: hosts > 1 ? hosts + (head.by ? " places, " : " hosts, ") + host + " to " + head.hosts[head.hostOf[last]] : host,
        };
    };

    function steps(answer, cell) {
        const [first, last] = [answer.firstStep[cell], answer.lastStep[cell]];
        return first === last
            ? "step " + timeline.whole(first)
            : "steps " + timeline.whole(first) + "–" + timeline.whole(last);
    }

    function lateness(head, answer, lane, cell) {
        const at = lane * answer.cells + cell;
        const [late, latest] = [answer.late[at], answer.latest[at]];
        const reference = answer.reference[cell];
        const row = answer.edges[lane];
        const single = answer.edges[lane + 1] - row === 1;
        const than = (value) =>
            timeline.amount(Math.abs(value)) + (value < 0 ? " earlier" : " later");
        if (answer.stepsPerCell === 1 && single) {
            const uncertainty = head.clock[row];
            const suffix = uncertainty ? ", ± " + timeline.amount(uncertainty) : "";
            return row === reference
                ? "it is the reference rank"
                : than(late) + " than the reference rank " + head.ranks[reference] + suffix;
        }
        return than(late) + " than the reference rank on average, at most " + timeline.amount(latest);
    }

    function last(head, answer, cell) {
        const rank = "rank " + head.ranks[answer.last[cell]];
        if (answer.stepsPerCell === 1) {
            return head.ranks.length > 1
                ? rank + " was last, by its " + CAUSES[answer.cause[cell]]
                : "";
        }
        const many = answer.lastStep[cell] - answer.firstStep[cell] + 1;
        return head.ranks.length > 1
            ? rank + " was last most often: in " + answer.lastCount[cell] + " of " + many + " steps"
            : "";
    }

    function pauses(head, answer, lane, cell) {
        return timeline.pausesIn(head, answer, lane, cell).map(({ count, ms }, kind) =>
            count ? count + " " + head.pauseNames[kind][count === 1 ? 0 : 1] + ", " + timeline.amount(ms) : "",
        );
    }

    // The parts of a cell's description.
    timeline.describe = function (head, answer, lane, cell) {
        const at = lane * answer.cells + cell;
        const name = timeline.laneName(head, answer, lane);
        const when = steps(answer, cell);
        const epoch = answer.epoch[cell] >= 0 ? "epoch " + answer.epoch[cell] : "";
        const title = name.who + ", " + when;
        const generation = head.generations[answer.generation[cell]];
        const named = generation ? timeline.generationName(generation) : "";
        const place = [name.where, named, epoch].filter(Boolean).join(", ");
        if (isNaN(answer.stages[0][at])) {
            const note = timeline.members(answer, lane, cell) ? "not measured" : "not in this generation";
            return { title: title, place: place, stages: [], notes: [note] };
        }
        const stages = head.stages.map((stage, index) => ({
            name: stage,
            title: head.titles[stage],
            amount: timeline.amount(
                index < 4 ? answer.stages[index][at] : answer.allreduce[cell],
            ),
        }));
        const many = answer.firstStep[cell] !== answer.lastStep[cell];
        const several = answer.edges[lane + 1] - answer.edges[lane] > 1;
        const notes = [
            "step of " + timeline.amount(answer.total[cell]) + (many ? " on average" : ""),
            lateness(head, answer, lane, cell),
            last(head, answer, cell),
            ...pauses(head, answer, lane, cell),
        ].filter(Boolean);
        return {
            title: title,
            place: place,
            kind: many || several ? "means" : "",
            stages: stages,
            notes: notes,
        };
    };

    timeline.sentence = function (found) {
        const stages = found.stages.map((one) => one.title.toLowerCase() + " " + one.amount);
        return (
            [
                found.title + " (" + found.place + ")",
                [found.kind, stages.join(", ")].filter(Boolean).join(": "),
                ...found.notes,
            ]
                .filter(Boolean)
                .join("; ") + "."
        );
    };
})();
