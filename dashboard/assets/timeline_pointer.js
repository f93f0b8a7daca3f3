// Mouse, wheel and touch on the timeline.
(function () {
    "use strict";

    const timeline = window.stallscopeTimeline;
    const CLICK = 4; // pixels that the pointer may move during a click
    const CLOSEST = 8; // pixels between two fingers
    const clamp = timeline.clamp;
    const Timeline = timeline.Timeline;

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
        const strip = y < this.strip.top + this.strip.height + 4;
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

    Timeline.prototype.toStrip = function (x) {
        const { strip, head, view } = this;
        const time = ((x - strip.left) / strip.width) * head.span;
        const half = (view.end - view.begin) / 2;
        this.setView({ begin: time - half, end: time + half });
    };
})();
