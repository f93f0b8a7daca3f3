// The timeline: its view, its requests to the server, pointer, keys and drawing.
(function () {
    "use strict";

    const timeline = (window.stallscopeTimeline = window.stallscopeTimeline || {});
    const STRIP = { top: 8, height: 34 };
    const ABOVE = 82;
    const BELOW = 24;
    const NARROW = 600;
    const LOWEST_LANE = 12; // pixels: enough for a step's shares and the lane's name
    const SHORTEST = 2e-5; // seconds
    const REQUEST_DELAY = 50; // milliseconds
    const ADDRESS_DELAY = 200;
    const CLICK = 4; // pixels that the pointer may move during a click
    const CLOSEST = 8; // pixels between two fingers
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

    // --- View ---

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

    // --- Requests ---

    Timeline.prototype.request = async function () {
        if (this.requesting || !this.plot) {
            return;
        }
        this.requesting = true;
        this.stale = false;
        this.busy(true);
        let failure = "";
        try {
            this.receive(timeline.decode(await this.fetchPart()));
        } catch (error) {
            failure = error.message;
        }
        this.requesting = false;
        if (this.removed.signal.aborted) {
            return;
        }
        if (this.stale) {
            this.request();
        } else if (failure) {
            this.announce(failure);
            this.busy(false);
        } else {
            this.updateAddressSoon();
        }
    };

    // Marks the timeline as busy until drawing, text and address are up to date.
    Timeline.prototype.busy = function (is) {
        this.node.setAttribute("aria-busy", String(is));
    };

    Timeline.prototype.fetchPart = async function () {
        const { begin, end, first, last } = this.view;
        const query = new URLSearchParams({
            begin: begin.toFixed(9),
            end: end.toFixed(9),
            rows: Math.floor(first) + "-" + Math.ceil(last),
            lanes: Math.max(1, Math.floor(this.plot.height / LOWEST_LANE)),
            columns: Math.max(16, Math.round(this.plot.width)),
        });
        if (this.shownGauge()) {
            query.set("gauge", this.shownGauge().key);
        }
        if (this.head.baseline) {
            query.set("baseline", this.head.baseline);
        }
        const answer = await fetch(this.head.address + "?" + query, { signal: this.removed.signal });
        if (!answer.ok) {
            const body = await answer.json().catch(() => ({}));
            throw new Error(body.error || "The dashboard did not answer.");
        }
        return answer.arrayBuffer();
    };

    Timeline.prototype.receive = function (answer) {
        this.detail = answer;
        const edges = answer.edges;
        const whole = answer.begin <= 0 && answer.end >= this.head.span * (1 - 1e-9);
        if (whole && edges[0] === 0 && edges[edges.length - 1] === this.head.ranks.length) {
            this.base = answer;
        }
        this.drawSoon();
    };

    // Writes the view to the address without Dash, which would render the page again.
    Timeline.prototype.updateAddress = function () {
        const left = this.removed.signal.aborted || window.location.pathname !== this.path;
        if (left || this.requesting || this.stale) {
            // The last answer names another view; the next one updates the address.
            return;
        }
        const query = new URLSearchParams(window.location.search);
        for (const name of ["from", "to", "rank", "ranks", "show", "gauge"]) {
            query.delete(name);
        }
        const { head, view } = this;
        if (this.detail && this.detail.names) {
            query.set("from", this.detail.names[0]);
            query.set("to", this.detail.names[1]);
        }
        if (this.row !== null) {
            query.set("rank", head.rowNames[this.row]);
        }
        if (view.last - view.first < head.ranks.length) {
            const last = Math.ceil(view.last) - 1;
            query.set("ranks", head.rowNames[Math.floor(view.first)] + "-" + head.rowNames[last]);
        }
        if (this.lateness) {
            query.set("show", "lateness");
        }
        if (this.gauge > 0) {
            query.set("gauge", this.shownGauge().key);
        }
        const search = query.toString();
        const address = this.path + (search ? "?" + search : "");
        if (address !== this.path + window.location.search) {
            window.history.replaceState(window.history.state, "", address);
        }
        if (this.time !== null || this.row !== null) {
            this.announcePosition();
        }
        this.busy(false);
    };

    Timeline.prototype.announce = function (text) {
        if (this.readout.textContent !== text) {
            this.readout.textContent = text;
        }
    };

    Timeline.prototype.announcePosition = function () {
        const place = this.selectedPlace();
        if (this.event && this.event.at === this.time) {
            this.announce(timeline.eventSentence(this.event));
            return;
        }
        if (this.generation && this.generation.begin === this.time) {
            this.announce(timeline.generationSentence(this.generation));
            return;
        }
        const recorded = place.lane >= 0 && place.cell >= 0;
        const text = recorded
            ? timeline.sentence(timeline.describe(this.head, place.answer, place.lane, place.cell))
            : "Nothing was recorded here.";
        this.announce([text, this.gaugeText(place.time)].filter(Boolean).join(" "));
    };

    // --- Machine metrics ---

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

    // The time at a point of the gauge; null outside of it.
    Timeline.prototype.timeInGauge = function (x, y) {
        const [top, bottom] = timeline.gaugeSpan(this.plot);
        const inside = this.shownGauge() && x >= this.plot.left && y >= top && y <= bottom;
        return inside ? this.placeAt(x, y).time : null;
    };

    Timeline.prototype.pointAtGauge = function (x, y) {
        const time = this.timeInGauge(x, y);
        if (time !== null) {
            this.pointed = time;
            this.tip.hidden = false;
            this.tip.replaceChildren(
                part("strong", "", timeline.clock(time, (this.view.end - this.view.begin) / this.plot.width)),
                part("div", "", this.gaugeText(time)),
            );
            this.placeTip(x, y);
        }
    };

    // --- Positions ---

    Timeline.prototype.answerAt = function (time) {
        const inside = (one) => one && one.begin <= time && time <= one.end;
        return inside(this.detail) ? this.detail : inside(this.base) ? this.base : null;
    };

    Timeline.prototype.placeAt = function (x, y) {
        const { plot, view } = this;
        const time = view.begin + ((x - plot.left) / plot.width) * (view.end - view.begin);
        const row = Math.floor(view.first + ((y - plot.top) / plot.height) * (view.last - view.first));
        return this.place(time, row);
    };

    Timeline.prototype.place = function (time, row) {
        const answer = this.answerAt(time);
        return {
            time: time,
            row: row,
            answer: answer,
            lane: answer ? timeline.laneOf(answer, row) : -1,
            cell: answer ? timeline.cellAt(answer, time) : -1,
        };
    };

    Timeline.prototype.selectedPlace = function () {
        const { begin, end } = this.view;
        return this.place(this.time ?? (begin + end) / 2, this.row ?? Math.floor(this.view.first));
    };

    Timeline.prototype.open = function (place) {
        if (!place || place.cell < 0) {
            return;
        }
        const { answer, cell } = place;
        if (answer.stepsPerCell > 1) {
            const length = answer.cellEnd[cell] - answer.cellBegin[cell];
            this.setView({
                begin: answer.cellBegin[cell] - 0.05 * length,
                end: answer.cellEnd[cell] + 0.05 * length,
            });
            return;
        }
        this.updateAddress();
        const path = this.head.stepAddress + answer.firstStep[cell];
        const query = new URLSearchParams(this.head.search);
        if (this.head.generations.length) {
            query.set("generation", this.head.generations[answer.generation[cell]].number);
        }
        const search = query.toString();
        const href = window.location.origin + path + (search ? "?" + search : "");
        window.dash_clientside.set_props("address", { href: href });
    };

    // --- Pointer and keys ---

    Timeline.prototype.listen = function () {
        const on = (target, kind, action, options) =>
            target.addEventListener(
                kind,
                action,
                Object.assign({ signal: this.removed.signal }, options),
            );
        on(this.node, "wheel", (event) => this.wheel(event), { passive: false });
        on(this.node, "keydown", (event) => this.keyDown(event));
        on(this.node, "focus", () => this.drawSoon());
        on(this.node, "blur", () => this.drawSoon());
        // While two fingers zoom the timeline, the page must not scroll.
        on(this.canvas, "touchmove", (event) => event.touches.length > 1 && event.preventDefault(), {
            passive: false,
        });
        on(this.canvas, "pointerdown", (event) => this.pointerDown(event));
        on(this.canvas, "pointermove", (event) => this.pointerMove(event));
        on(this.canvas, "pointerup", (event) => this.pointerUp(event));
        on(this.canvas, "pointercancel", (event) => this.pointers.delete(event.pointerId));
        on(this.canvas, "pointerleave", () => this.point(null));
        const card = document.getElementById("timeline-card");
        on(card, "click", (event) => this.click(event));
        on(card, "change", (event) => this.change(event.target));
        const sizes = new ResizeObserver(() => this.resize());
        sizes.observe(this.node);
        const schemes = new MutationObserver(() => this.drawSoon());
        schemes.observe(document.documentElement, {
            attributeFilter: ["data-mantine-color-scheme"],
        });
        this.removed.signal.addEventListener("abort", function () {
            sizes.disconnect();
            schemes.disconnect();
        });
    };

    Timeline.prototype.position = function (event) {
        const box = this.canvas.getBoundingClientRect();
        return [event.clientX - box.left, event.clientY - box.top];
    };

    Timeline.prototype.wheel = function (event) {
        const [x, y] = this.position(event);
        const { plot, view } = this;
        const unit = event.deltaMode === 1 ? 16 : event.deltaMode === 2 ? 400 : 1;
        const [dx, dy] = [event.deltaX * unit, event.deltaY * unit];
        const place = this.placeAt(x, y);
        const whole = view.end - view.begin >= this.head.span;
        const rows = ((view.last - view.first) * (dy || dx)) / plot.height;
        if (event.altKey || (x < plot.left && !event.shiftKey)) {
            this.zoomRows(Math.exp(dy * 0.002), view.first + ((y - plot.top) / plot.height) * (view.last - view.first));
        } else if (event.shiftKey) {
            this.pan(0, rows);
        } else if (Math.abs(dx) > Math.abs(dy)) {
            this.pan((dx / plot.width) * (view.end - view.begin));
        } else if (event.ctrlKey) {
            // A pinch on a trackpad sends many small wheel events with Ctrl.
            this.zoom(Math.exp(clamp(dy, -50, 50) * 0.01), place.time);
        } else if (dy > 0 && whole) {
            // The whole run is in view: let the page scroll.
            return;
        } else {
            this.zoom(Math.exp(clamp(dy, -300, 300) * 0.002), place.time);
        }
        event.preventDefault();
        this.point(null);
    };

    Timeline.prototype.pointerDown = function (event) {
        const [x, y] = this.position(event);
        this.canvas.setPointerCapture(event.pointerId);
        const strip = y < STRIP.top + STRIP.height + 4;
        this.pointers.set(event.pointerId, { x: x, y: y, from: [x, y], strip: strip, moved: false });
        if (strip) {
            this.toStrip(x);
        }
        if (this.pointers.size > 1) {
            // With several fingers, none of them clicks.
            this.pointers.forEach((one) => (one.moved = true));
        }
        this.node.focus({ preventScroll: true });
        event.preventDefault();
    };

    Timeline.prototype.pointerMove = function (event) {
        const [x, y] = this.position(event);
        const own = this.pointers.get(event.pointerId);
        if (!own) {
            this.point(this.placeIn(x, y), x, y);
            this.pointAtMarks(timeline.eventLines(timeline.eventsAt(this.scene(), x, y)), x, y);
            this.pointAtMarks(timeline.generationsAt(this.scene(), x, y).map(timeline.generationSentence), x, y);
            this.pointAtGauge(x, y);
            return;
        }
        const other = [...this.pointers.values()].find((one) => one !== own);
        const { plot, view } = this;
        own.moved = own.moved || Math.hypot(x - own.from[0], y - own.from[1]) > CLICK;
        if (own.strip) {
            this.toStrip(x);
        } else if (other) {
            this.pinch(own, other, x, y);
        } else if (own.moved) {
            const perPixel = (view.end - view.begin) / plot.width;
            const rowsPerPixel = (view.last - view.first) / plot.height;
            this.pan((own.x - x) * perPixel, (own.y - y) * rowsPerPixel);
            this.point(null);
        }
        if (own.moved || own.strip) {
            [own.x, own.y] = [x, y];
        }
    };

    // Zooms and pans so that the point between two fingers stays. Fingers side by side zoom in time,
    // fingers one above the other in ranks.
    Timeline.prototype.pinch = function (own, other, x, y) {
        const { plot, view } = this;
        this.pan(
            ((own.x - x) / 2 / plot.width) * (view.end - view.begin),
            ((own.y - y) / 2 / plot.height) * (view.last - view.first),
        );
        const factor = (before, after, fixed) =>
            Math.max(Math.abs(before - fixed), CLOSEST) / Math.max(Math.abs(after - fixed), CLOSEST);
        if (Math.abs(x - other.x) >= Math.abs(y - other.y)) {
            this.zoom(factor(own.x, x, other.x), this.placeAt((x + other.x) / 2, y).time);
        } else {
            const middle = ((y + other.y) / 2 - plot.top) / plot.height;
            const row = this.view.first + middle * (this.view.last - this.view.first);
            this.zoomRows(factor(own.y, y, other.y), row);
        }
    };

    Timeline.prototype.pointerUp = function (event) {
        const own = this.pointers.get(event.pointerId);
        this.pointers.delete(event.pointerId);
        if (!own || own.moved || own.strip) {
            return;
        }
        const [x, y] = this.position(event);
        const place = this.placeIn(x, y);
        const [mark] = timeline.eventsAt(this.scene(), x, y);
        const [generation] = timeline.generationsAt(this.scene(), x, y);
        if (mark) {
            this.selectEvent(mark);
        } else if (generation) {
            this.selectGeneration(generation);
        } else if (place) {
            this.open(place);
        } else if (x < this.plot.left && y >= this.plot.top && y <= this.plot.bottom) {
            this.openLane(this.placeAt(x, y).row);
        }
    };

    // After a click on a lane's name: zooms into a group, or selects the rank.
    Timeline.prototype.openLane = function (row) {
        const answer = this.detail || this.base;
        const lane = answer ? timeline.laneOf(answer, row) : -1;
        if (lane >= 0 && answer.edges[lane + 1] - answer.edges[lane] > 1) {
            this.setView({ first: answer.edges[lane], last: answer.edges[lane + 1] });
        }
        this.goToRow(row, false);
    };

    Timeline.prototype.toStrip = function (x) {
        const { strip, head, view } = this;
        const time = ((x - strip.left) / strip.width) * head.span;
        const half = (view.end - view.begin) / 2;
        this.setView({ begin: time - half, end: time + half });
    };

    Timeline.prototype.placeIn = function (x, y) {
        const { plot } = this;
        const inside = x >= plot.left && x <= plot.right && y >= plot.top && y <= plot.bottom;
        return inside ? this.placeAt(x, y) : null;
    };

    Timeline.prototype.point = function (place, x, y) {
        this.hover = place && place.cell >= 0 && place.lane >= 0 ? place : null;
        this.pointed = place ? place.time : null;
        this.tip.hidden = !this.hover;
        this.canvas.style.cursor = this.hover
            ? this.hover.answer.stepsPerCell > 1
                ? "zoom-in"
                : "pointer"
            : "";
        if (this.hover) {
            this.fillTip(timeline.describe(this.head, place.answer, place.lane, place.cell));
            this.placeTip(x, y);
        }
        this.drawSoon();
    };

    Timeline.prototype.pointAtMarks = function (lines, x, y) {
        if (lines.length) {
            this.tip.hidden = false;
            this.tip.replaceChildren(...lines.map((one) => part("div", "", one)));
            this.canvas.style.cursor = "pointer";
            this.placeTip(x, y);
        }
    };

    Timeline.prototype.placeTip = function (x, y) {
        const right = x + 16 + this.tip.offsetWidth > this.width;
        this.tip.style.left = Math.max(0, right ? x - 16 - this.tip.offsetWidth : x + 16) + "px";
        const top = Math.min(y + 16, this.height - this.tip.offsetHeight - 4);
        this.tip.style.top = Math.max(top, 0) + "px";
    };

    function part(kind, name, words) {
        const element = document.createElement(kind);
        element.className = name;
        element.textContent = words;
        return element;
    }

    Timeline.prototype.fillTip = function (found) {
        const list = part("dl", "timeline-stages", "");
        for (const stage of found.stages) {
            const swatch = part("span", "swatch", "");
            const [light, dark] = this.head.colours[stage.name];
            swatch.style.setProperty("--light", light);
            swatch.style.setProperty("--dark", dark);
            const title = part("dt", "", "");
            title.append(swatch, stage.title);
            list.append(title, part("dd", "", stage.amount));
        }
        const place = [found.place, found.kind].filter(Boolean).join(" · ");
        this.tip.replaceChildren(
            part("strong", "", found.title),
            part("div", "timeline-dim", place),
            list,
            ...found.notes.map((note) => part("div", "", note)),
        );
    };

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
        }
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
        const choice = document.querySelector("#timeline-card [data-choose]");
        if (choice) {
            choice.selectedIndex = this.gauge;
        }
        for (const legend of document.querySelectorAll("#timeline-card [data-legend]")) {
            legend.hidden = (legend.dataset.legend === "lateness") !== this.lateness;
        }
    };

    // --- Drawing ---

    Timeline.prototype.resize = function () {
        const width = this.node.clientWidth;
        if (!width || width === this.width) {
            return;
        }
        const ranks = this.head.ranks.length;
        const ideal = ranks <= 4 ? 56 : ranks <= 8 ? 44 : ranks <= 16 ? 30 : 22;
        const room = clamp(window.innerHeight - 500, 280, 620);
        const height = Math.round(clamp(ranks * ideal, 90, room));
        const narrow = width < NARROW;
        const left = narrow ? 46 : 170;
        this.width = width;
        const above = ABOVE + timeline.eventsHeight(this.head) + timeline.generationsHeight(this.head);
        this.foot = above + height + timeline.gaugeHeight(this.head);
        this.height = this.foot + BELOW;
        this.narrow = narrow;
        this.ratio = Math.min(window.devicePixelRatio || 1, 2);
        this.plot = {
            left: left,
            right: width,
            width: width - left,
            top: above,
            bottom: above + height,
            height: height,
        };
        this.strip = { ...STRIP, left: left, width: width - left - 2 };
        this.canvas.width = Math.round(width * this.ratio);
        this.canvas.height = Math.round(this.height * this.ratio);
        this.canvas.style.height = this.height + "px";
        this.pixels = null;
        this.drawSoon();
        this.requestSoon();
    };

    Timeline.prototype.drawSoon = function () {
        if (!this.drawing) {
            this.drawing = true;
            requestAnimationFrame(() => {
                this.drawing = false;
                if (!this.removed.signal.aborted && this.plot) {
                    this.draw();
                }
            });
        }
    };

    Timeline.prototype.colours = function () {
        const style = getComputedStyle(this.node);
        const one = (name) => style.getPropertyValue("--timeline-" + name).trim();
        return {
            text: one("text"),
            dimmed: one("dimmed"),
            page: one("page"),
            lane: one("lane"),
            line: one("line"),
            range: one("range"),
            shade: one("shade"),
            dark: one("dark") === "1",
        };
    };

    Timeline.prototype.draw = function () {
        const draw = this.canvas.getContext("2d");
        const scene = this.scene();
        draw.setTransform(1, 0, 0, 1, 0, 0);
        draw.fillStyle = scene.colours.page;
        draw.fillRect(0, 0, this.canvas.width, this.canvas.height);
        this.paint(draw, scene);
        draw.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
        draw.font = scene.font;
        this.decorate(draw, scene);
    };

    // Draws everything but the lanes, on the canvas or with an SVG pen.
    Timeline.prototype.decorate = function (draw, scene) {
        timeline.strip(draw, scene);
        timeline.laneNames(draw, scene);
        draw.save();
        draw.beginPath();
        draw.rect(this.plot.left, this.plot.top, this.plot.width, this.plot.height);
        draw.clip();
        timeline.gaps(draw, scene);
        timeline.details(draw, scene);
        draw.restore();
        timeline.flags(draw, scene);
        timeline.events(draw, scene, this.event);
        timeline.generations(draw, scene);
        timeline.steps(draw, scene);
        timeline.gauge(draw, scene, this.shownGauge(), this.pointed ?? this.time);
        timeline.times(draw, scene);
        this.cursors(draw, scene);
    };

    Timeline.prototype.cursors = function (draw, scene) {
        const focused = document.activeElement === this.node;
        if (this.row !== null || (focused && this.time !== null)) {
            const place = this.selectedPlace();
            const lane = timeline.laneOf(scene.answer || { edges: [0] }, place.row);
            if (scene.answer && lane >= 0) {
                const [top, bottom] = scene.laneSpan(lane);
                draw.fillStyle = scene.colours.text;
                draw.fillRect(this.plot.left - 8, top, 2, Math.max(bottom - top, 2));
            }
            if (focused && place.answer === scene.answer) {
                timeline.cursor(draw, scene, { ...place, lane: lane }, scene.colours.text, 2);
            }
        }
        if (this.hover && this.hover.answer === scene.answer) {
            timeline.cursor(draw, scene, this.hover, scene.colours.text, 1.5);
        }
    };

    // --- Saving ---

    Timeline.prototype.picture = async function (kind) {
        await this.upToDate();
        this.draw();
        const scene = this.scene();
        const gaps = this.head.between.slice(1);
        const names = this.lateness
            ? [
                  [
                      this.head.heat.at(-1)[scene.colours.dark ? 1 : 0],
                      timeline.amount(this.head.lateFrom) + " later or more",
                  ],
              ]
            : [...this.head.stages, "imbalance", ...gaps].map((name) => [
                  scene.colour(name),
                  this.head.titles[name],
              ]);
        const title = document.querySelector("#page h1").textContent + ": ranks over time";
        if (kind === "png") {
            return timeline.png(this.canvas, this.ratio, scene, title, names);
        }
        const paint = (pen) => {
            timeline.lanes(pen, scene, this.inks(scene));
            this.decorate(pen, scene);
        };
        return timeline.svg(paint, scene, title, names);
    };

    Timeline.prototype.csv = async function () {
        await this.upToDate();
        const rows = timeline.rows(this.head, this.detail || this.base, this.view, this.shownGauge());
        return window.stallscopeSave.csv(rows);
    };

    // Waits for the answer for the current view, so that the saved file shows it.
    Timeline.prototype.upToDate = async function () {
        while (this.requesting || this.stale) {
            await new Promise((done) => setTimeout(done, REQUEST_DELAY));
        }
    };

    Timeline.prototype.scene = function () {
        const { plot, view, head } = this;
        const colours = this.colours();
        const answer = this.detail || this.base;
        const colour = (name) => head.colours[name][colours.dark ? 1 : 0];
        return {
            head: head,
            view: view,
            plot: plot,
            strip: this.strip,
            foot: this.foot,
            width: this.width,
            height: this.height,
            narrow: this.narrow,
            lateness: this.lateness,
            answer: answer,
            bars: Boolean(answer) && timeline.sideBySide(answer, view, plot.width),
            colours: colours,
            colour: colour,
            ink: (name) => (bright(colour(name)) ? "#111" : "#fff"),
            font: "12px " + getComputedStyle(this.node).fontFamily,
            x: (time) => plot.left + ((time - view.begin) / (view.end - view.begin)) * plot.width,
            y: (row) => plot.top + ((row - view.first) / (view.last - view.first)) * plot.height,
            laneSpan: function (lane) {
                const [top, bottom] = timeline.laneSpan(answer, view, lane, plot.height);
                return [plot.top + top, plot.top + bottom];
            },
        };
    };

    function bright(colour) {
        const [red, green, blue] = [1, 3, 5].map((at) => {
            const part = parseInt(colour.slice(at, at + 2), 16) / 255;
            return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
        });
        // Black text has more contrast than white on such colours.
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.179;
    }

    // The colours of lanes.
    Timeline.prototype.inks = function (scene) {
        return {
            lateness: this.lateness,
            lateFrom: this.head.lateFrom,
            colours: this.head.stages.map((name) => timeline.packed(scene.colour(name))),
            heat: this.head.heat.map((one) => timeline.packed(one[scene.colours.dark ? 1 : 0])),
            late: timeline.packed(scene.colour("imbalance")),
            blank: timeline.packed(scene.colours.lane),
            absent: timeline.packed(scene.colours.page),
        };
    };

    Timeline.prototype.paint = function (draw, scene) {
        const { plot, ratio, view } = this;
        const [width, height] = [Math.round(plot.width * ratio), Math.round(plot.height * ratio)];
        if (!this.pixels || this.pixels.width !== width || this.pixels.height !== height) {
            this.pixels = new ImageData(width, height);
        }
        const pixels = new Uint32Array(this.pixels.data.buffer);
        pixels.fill(timeline.packed(scene.colours.page));
        const picture = {
            ...this.inks(scene),
            ratio: ratio,
            background: (y) => pixels.subarray(y * width, (y + 1) * width),
        };
        const { base, detail } = this;
        if (base && base !== detail && !covers(detail, view)) {
            timeline.paint(pixels, width, height, base, view, picture);
        }
        if (detail) {
            timeline.paint(pixels, width, height, detail, view, picture);
        }
        draw.putImageData(this.pixels, Math.round(plot.left * ratio), Math.round(plot.top * ratio));
    };

    function covers(answer, view) {
        const slack = 1e-6 * (view.end - view.begin) + 2e-9;
        return (
            answer &&
            answer.begin <= view.begin + slack &&
            answer.end >= view.end - slack &&
            answer.edges[0] <= view.first &&
            answer.edges[answer.edges.length - 1] >= view.last
        );
    }

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
