// The timeline's keys, buttons and choices.
(function () {
    "use strict";

    const timeline = window.stallscopeTimeline;
    const clamp = timeline.clamp;
    const Timeline = timeline.Timeline;

    Timeline.prototype.keyDown = function (event) {
        if (event.ctrlKey || event.metaKey || event.altKey) {
            return;
        }
        const action = this.actions(event.shiftKey)[event.key];
        if (action) {
            event.preventDefault();
            this.point(null);
            action();
        }
    };

    Timeline.prototype.actions = function (shift) {
        const rows = this.view.last - this.view.first;
        return {
            ArrowLeft: () => this.step(-1, shift),
            ArrowRight: () => this.step(1, shift),
            ArrowUp: () => this.lane(-1),
            ArrowDown: () => this.lane(1),
            "+": () => this.zoom(0.5),
            "=": () => this.zoom(0.5),
            "-": () => this.zoom(2),
            "−": () => this.zoom(2),
            "]": () => this.zoomRows(0.5),
            "[": () => this.zoomRows(2),
            PageUp: () => this.pan(0, -0.8 * rows),
            PageDown: () => this.pan(0, 0.8 * rows),
            Home: () => this.do("all"),
            End: () => this.step(this.head.span, false, true),
            n: () => this.goToLate(1),
            p: () => this.goToLate(-1),
            m: () => this.showGauge(this.gauge + 1),
            M: () => this.showGauge(this.gauge - 1),
            e: () => this.goToEvent(1),
            E: () => this.goToEvent(-1),
            g: () => this.goToGeneration(1),
            G: () => this.goToGeneration(-1),
            s: () => this.do(this.lateness ? "stages" : "lateness"),
            Enter: () => this.open(this.selectedPlace()),
            "?": () => this.toggleKeys(),
        };
    };

    // Moves the selected time, and the view with it.
    Timeline.prototype.step = function (direction, single, end) {
        const { begin, end: viewEnd } = this.view;
        const here = this.time ?? (begin + viewEnd) / 2;
        const answer = this.answerAt(here);
        const cell = answer ? timeline.cellAt(answer, here) : -1;
        const cellLength = cell < 0 ? 0 : answer.cellEnd[cell] - answer.cellBegin[cell];
        let distance =
            direction * (single && cellLength ? cellLength : Math.max(cellLength, (viewEnd - begin) / 20));
        if (end) {
            distance = this.head.span - here - cellLength / 2;
        }
        let time = clamp(here + distance, 0, this.head.span * (1 - 1e-9));
        if (answer && answer.stepsPerCell === 1 && !end) {
            // Go to the middle of a step, so that rounding never skips one.
            const next = timeline.cellAfter(answer, time);
            if (next < answer.cells) {
                time = (answer.cellBegin[next] + answer.cellEnd[next]) / 2;
            }
        }
        this.time = time;
        this.row = this.row ?? Math.floor(this.view.first);
        this.pan(time - here);
        this.selectionChanged();
    };

    Timeline.prototype.lane = function (direction) {
        const answer = this.detail || this.base;
        if (!answer) {
            return;
        }
        if (this.row === null) {
            this.goToRow(Math.floor(this.view.first), false);
            return;
        }
        const lane = timeline.laneOf(answer, this.row);
        const next =
            lane < 0
                ? this.row + direction
                : direction > 0
                  ? answer.edges[lane + 1]
                  : answer.edges[lane] - 1;
        if (next >= 0 && next < this.head.ranks.length) {
            const other = timeline.laneOf(answer, next);
            this.goToRow(other < 0 ? next : answer.edges[other], false);
        }
    };

    Timeline.prototype.toggleKeys = function () {
        const list = document.getElementById("timeline-keys");
        list.open = !list.open;
        if (list.open) {
            list.querySelector("summary").focus();
        }
    };

    Timeline.prototype.click = function (event) {
        const button = event.target.closest("button");
        if (!button) {
            return;
        }
        const { do: action, row, time } = button.dataset;
        if (action) {
            this.do(action);
        } else if (row !== undefined) {
            this.goToRow(Number(row), true);
        } else if (time !== undefined) {
            const meanStep = this.head.span / this.head.count;
            this.goToTime(Number(time), Math.min(this.view.end - this.view.begin, 100 * meanStep));
        }
    };

    Timeline.prototype.change = function (target) {
        if (target.dataset.choose === "gauge") {
            this.showGauge(target.selectedIndex);
        } else if (target.dataset.choose === "arrangement") {
            this.arrange(target.value);
        }
    };

    // Shows the page again with the ranks of each place in a dimension of the mesh together, or each host's.
    Timeline.prototype.arrange = function (dimension) {
        this.updateAddress();
        const query = new URLSearchParams(window.location.search);
        // Other ranks are neighbours there.
        query.delete("ranks");
        query.delete("by");
        if (dimension) {
            query.set("by", dimension);
        }
        const search = query.toString();
        const href = window.location.origin + this.path + (search ? "?" + search : "");
        window.dash_clientside.set_props("address", { href: href });
    };

    Timeline.prototype.do = function (action) {
        if (action === "stages" || action === "lateness") {
            this.lateness = action === "lateness";
            this.updateControls();
            this.selectionChanged();
            return;
        }
        const actions = {
            in: () => this.zoom(0.5),
            out: () => this.zoom(2),
            all: () => this.showAll(),
            "next-late": () => this.goToLate(1),
            "previous-late": () => this.goToLate(-1),
            "next-event": () => this.goToEvent(1),
            "previous-event": () => this.goToEvent(-1),
        };
        actions[action]();
    };

    Timeline.prototype.updateControls = function () {
        for (const button of document.querySelectorAll("#timeline-card [data-do]")) {
            const own = button.dataset.do;
            if (own === "stages" || own === "lateness") {
                button.setAttribute("aria-pressed", String((own === "lateness") === this.lateness));
            } else if (own.endsWith("late")) {
                button.disabled = !this.head.late.length;
            }
        }
        const shown = { gauge: this.gauge, arrangement: this.head.arrangements.indexOf(this.head.by) + 1 };
        for (const choice of document.querySelectorAll("#timeline-card [data-choose]")) {
            choice.selectedIndex = shown[choice.dataset.choose];
        }
    };

    // The shown metric; undefined if no machine measured anything.
    Timeline.prototype.shownGauge = function () {
        return this.head.gauges[this.gauge];
    };

    Timeline.prototype.gaugeText = function (time) {
        return timeline.gaugeSentence(this.answerAt(time), this.shownGauge(), time);
    };

    Timeline.prototype.showGauge = function (number) {
        const count = this.head.gauges.length;
        if (count) {
            this.gauge = (number + count) % count;
            this.updateControls();
            this.requestSoon();
            this.selectionChanged();
        } else {
            this.announce("No machine logged metrics during this run.");
        }
    };
})();
