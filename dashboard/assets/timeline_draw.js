// Draws the timeline on its canvas.
(function () {
    "use strict";

    const timeline = window.stallscopeTimeline;
    const STRIP = { top: 8, height: 34 };
    const ABOVE = 82;
    const BELOW = 24;
    const NARROW = 600;
    const clamp = timeline.clamp;
    const Timeline = timeline.Timeline;

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
        showLegend(scene);
    };

    // Shows the parts of the legend that the picture has; single steps also mark the last rank.
    function showLegend(scene) {
        const shown = {
            stages: !scene.lateness,
            lateness: scene.lateness,
            late: !scene.lateness && !scene.bars,
            last: !scene.lateness && scene.bars,
        };
        for (const part of document.querySelectorAll("#timeline-card [data-legend]")) {
            part.hidden = !shown[part.dataset.legend];
        }
    }

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
        timeline.pauses(draw, scene);
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
})();
