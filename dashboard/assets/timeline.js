// The timeline and its view. Files named timeline_… add to it, and are loaded after this one.
(function () {
    "use strict";

    const timeline = (window.stallscopeTimeline = window.stallscopeTimeline || {});
    const SHORTEST = 2e-5; // seconds
    const REQUEST_DELAY = 50; // milliseconds
    const ADDRESS_DELAY = 200;
    const AROUND = 16; // rows to show around a chosen rank
    const HINT = "Point at a step, or press Tab to focus and arrow keys to move.";

    let current = null;

    const clamp = (value, low, high) => Math.min(Math.max(value, low), high);

    function debounced(action, delay) {
        let timer = 0;
        return function () {
            clearTimeout(timer);
            timer = setTimeout(action, delay);
        };
    }

    function Timeline(node, head) {
        const canvas = document.createElement("canvas");
        const tip = document.createElement("div");
        tip.className = "timeline-tip";
        tip.hidden = true;
        canvas.setAttribute("aria-hidden", "true");
        tip.setAttribute("aria-hidden", "true");
        node.replaceChildren(canvas, tip);
        Object.assign(this, {
            node: node,
            head: head,
            canvas: canvas,
            tip: tip,
            readout: document.getElementById("timeline-readout"),
            path: window.location.pathname,
            view: { begin: head.view[0], end: head.view[1], first: head.rows[0], last: head.rows[1] },
            lateness: head.show === "lateness",
            row: head.row,
            time: null,
            hover: null,
            event: null,
            generation: null,
            gauge: head.shownGauge,
            pointed: null,
            base: null,
            detail: null,
            requesting: false,
            stale: true,
            pointers: new Map(),
            pixels: null,
            removed: new AbortController(),
        });
        const request = debounced(() => this.request(), REQUEST_DELAY);
        const updateAddress = debounced(() => this.updateAddress(), ADDRESS_DELAY);
        this.requestSoon = function () {
            this.stale = true;
            this.busy(true);
            request();
        };
        this.updateAddressSoon = function () {
            this.busy(true);
            updateAddress();
        };
        this.readout.textContent = HINT;
        window.stallscopeSave.register("timeline", {
            csv: () => this.csv(),
            picture: (card, kind) => this.picture(kind),
        });
        this.listen();
        this.updateControls();
        this.resize();
        this.request();
    }

    timeline.Timeline = Timeline;
    timeline.clamp = clamp;

    Timeline.prototype.setView = function (change) {
        const view = Object.assign(this.view, change);
        const span = this.head.span;
        const length = clamp(view.end - view.begin, Math.min(SHORTEST, span), span);
        view.begin = clamp(view.begin, 0, span - length);
        view.end = view.begin + length;
        const count = this.head.ranks.length;
        const rows = clamp(view.last - view.first, 1, count);
        view.first = clamp(view.first, 0, count - rows);
        view.last = view.first + rows;
        this.drawSoon();
        this.requestSoon();
    };

    Timeline.prototype.zoom = function (factor, time) {
        const { begin, end } = this.view;
        const at = time === undefined ? (this.time ?? (begin + end) / 2) : time;
        const length = clamp((end - begin) * factor, Math.min(SHORTEST, this.head.span), this.head.span);
        const part = clamp((at - begin) / (end - begin), 0, 1);
        this.setView({ begin: at - part * length, end: at + (1 - part) * length });
    };

    Timeline.prototype.zoomRows = function (factor, row) {
        const { first, last } = this.view;
        const at = row === undefined ? (this.row === null ? (first + last) / 2 : this.row + 0.5) : row;
        const part = clamp((at - first) / (last - first), 0, 1);
        const rows = clamp((last - first) * factor, 1, this.head.ranks.length);
        const start = at - part * rows;
        if (row === undefined) {
            // Keys show whole rows only.
            this.setView({ first: Math.floor(start), last: Math.floor(start) + Math.ceil(rows) });
        } else {
            this.setView({ first: start, last: start + rows });
        }
    };

    Timeline.prototype.pan = function (seconds, rows) {
        const { begin, end, first, last } = this.view;
        this.setView({
            begin: begin + seconds,
            end: end + seconds,
            first: first + (rows || 0),
            last: last + (rows || 0),
        });
    };

    Timeline.prototype.showAll = function () {
        this.setView({ begin: 0, end: this.head.span, first: 0, last: this.head.ranks.length });
    };

    // Selects a row and scrolls to it; zooms in on its neighbours if requested.
    Timeline.prototype.goToRow = function (row, zoomIn) {
        const { first, last } = this.view;
        const rows = zoomIn ? Math.min(last - first, AROUND, this.head.ranks.length) : last - first;
        this.row = clamp(row, 0, this.head.ranks.length - 1);
        if (rows < last - first || this.row < first || this.row + 1 > last) {
            const start = this.row + 0.5 - rows / 2;
            this.setView({ first: Math.floor(start), last: Math.floor(start) + rows });
        }
        this.selectionChanged();
    };

    Timeline.prototype.goToTime = function (time, length) {
        this.time = time;
        this.setView({ begin: time - length / 2, end: time + length / 2 });
        this.selectionChanged();
    };

    Timeline.prototype.goToLate = function (direction) {
        const here = this.time ?? (direction > 0 ? this.view.begin : this.view.end);
        const late = this.head.late;
        const found =
            direction > 0
                ? late.find((one) => one[0] > here)
                : late.findLast((one) => one[1] < here);
        if (!found) {
            this.announce("There is no late step " + (direction > 0 ? "after" : "before") + " this position.");
            return;
        }
        const [begin, end, row] = found;
        const length = Math.min(this.view.end - this.view.begin, 12 * (end - begin));
        this.goToTime((begin + end) / 2, length);
        this.goToRow(row, true);
    };

    Timeline.prototype.goToEvent = function (direction) {
        const here = this.time ?? (direction > 0 ? this.view.begin : this.view.end);
        const from = this.event && this.event.at === this.time ? this.event : null;
        const found = timeline.nextEvent(this.head.events, from, here, direction);
        if (found) {
            this.selectEvent(found);
        } else {
            const side = direction > 0 ? "after" : "before";
            this.announce("No event of other logs " + side + " this position.");
        }
    };

    Timeline.prototype.selectEvent = function (event) {
        this.event = event;
        this.goToTime(event.at, this.view.end - this.view.begin);
    };

    Timeline.prototype.goToGeneration = function (direction) {
        const here = this.time ?? (direction > 0 ? this.view.begin : this.view.end);
        const { generations } = this.head;
        const found =
            direction > 0
                ? generations.find((one) => one.begin > here)
                : generations.findLast((one) => one.begin < here);
        if (found) {
            this.selectGeneration(found);
        } else if (generations.length) {
            this.announce("No generation begins " + (direction > 0 ? "after" : "before") + " this position.");
        }
    };

    // Shows all steps of a generation.
    Timeline.prototype.selectGeneration = function (generation) {
        this.generation = generation;
        this.time = generation.begin;
        this.setView({ begin: generation.begin, end: generation.end });
        this.selectionChanged();
    };

    Timeline.prototype.selectionChanged = function () {
        this.drawSoon();
        this.updateAddressSoon();
    };

    window.dash_clientside = Object.assign({}, window.dash_clientside, {
        stallscopeTimeline: {
            show: function (head) {
                const node = document.getElementById("timeline");
                if (current) {
                    current.removed.abort();
                }
                current = node && head ? new Timeline(node, head) : null;
                return current !== null;
            },
        },
    });
})();
