// The timeline as SVG: rectangles and texts are elements instead of pixels.
(function () {
    "use strict";

    const timeline = (window.stallscopeTimeline = window.stallscopeTimeline || {});
    const SVG = "http://www.w3.org/2000/svg";
    const FONT = /^(?:(\w+) )?([\d.]+)px (.+)$/;
    const TRANSPARENT = /^rgba\((.+), ([\d.]+)\)$/;
    const ANCHORS = { left: "start", center: "middle", right: "end" };
    // From the middle of a line of text to its baseline, as a share of the font size.
    const TO_BASELINE = 0.35;
    // Lanes are drawn in tenths of pixels, because integers keep the file small.
    const FINE = 10;
    // Shares of a step are rounded to half a pixel, in lower lanes to a whole pixel. That is not visible,
    // and many neighbours become equal and merge.
    const LOW_LANE = 20;

    const rounded = (value) => Number(value.toFixed(2));

    function element(parent, kind, attributes) {
        const one = document.createElementNS(SVG, kind);
        for (const [name, value] of Object.entries(attributes)) {
            one.setAttribute(name, typeof value === "number" ? rounded(value) : value);
        }
        parent.append(one);
        return one;
    }

    // Without rgba(), which programs other than browsers may not support.
    function coloured(what, style) {
        const [, colour, share] = TRANSPARENT.exec(style) || [];
        return share ? { [what]: `rgb(${colour})`, [what + "-opacity"]: share } : { [what]: style };
    }

    // A pen with the part of a canvas context that the timeline uses.
    function Pen(width, height, title, font) {
        this.root = document.createElementNS(SVG, "svg");
        const size = { width: width, height: height, viewBox: `0 0 ${width} ${height}` };
        // Without smoothing, adjacent rectangles have no visible seam.
        const root = { ...size, role: "img", "shape-rendering": "crispEdges" };
        for (const [name, value] of Object.entries(root)) {
            this.root.setAttribute(name, value);
        }
        element(this.root, "title", {}).textContent = title;
        this.measure = document.createElement("canvas").getContext("2d");
        this.saved = [];
        this.state = { group: this.root, font: font, lineWidth: 1, textAlign: "left", dash: [] };
        Object.assign(this, this.state);
    }

    Pen.prototype.save = function () {
        this.saved.push(Object.fromEntries(Object.keys(this.state).map((name) => [name, this[name]])));
    };

    Pen.prototype.restore = function () {
        Object.assign(this, this.saved.pop());
    };

    Pen.prototype.translate = function (x, y) {
        this.group = element(this.group, "g", { transform: `translate(${x} ${y})` });
    };

    Pen.prototype.setLineDash = function (dash) {
        this.dash = dash;
    };

    Pen.prototype.fillRect = function (x, y, width, height) {
        const style = coloured("fill", this.fillStyle);
        element(this.group, "rect", { x: x, y: y, width: Math.max(width, 0), height: height, ...style });
    };

    Pen.prototype.strokeRect = function (x, y, width, height) {
        const place = { x: x, y: y, width: width, height: height };
        element(this.group, "rect", { ...place, fill: "none", ...this.line() });
    };

    Pen.prototype.line = function () {
        const dash = this.dash.length ? { "stroke-dasharray": this.dash.join(" ") } : {};
        return { ...coloured("stroke", this.strokeStyle), "stroke-width": this.lineWidth, ...dash };
    };

    Pen.prototype.beginPath = function () {
        this.path = "";
    };

    Pen.prototype.moveTo = function (x, y) {
        this.path += `M${rounded(x)} ${rounded(y)}`;
    };

    Pen.prototype.lineTo = function (x, y) {
        this.path += `L${rounded(x)} ${rounded(y)}`;
    };

    Pen.prototype.rect = function (x, y, width, height) {
        this.path += `M${x} ${y}h${width}v${height}h${-width}z`;
    };

    Pen.prototype.stroke = function () {
        element(this.group, "path", { d: this.path, fill: "none", ...this.line() });
    };

    Pen.prototype.fill = function () {
        element(this.group, "path", { d: this.path, ...coloured("fill", this.fillStyle) });
    };

    Pen.prototype.clip = function () {
        const id = "clip-" + this.root.querySelectorAll("clipPath").length;
        element(element(this.group, "clipPath", { id: id }), "path", { d: this.path });
        this.group = element(this.group, "g", { "clip-path": `url(#${id})` });
    };

    Pen.prototype.measureText = function (words) {
        this.measure.font = this.font;
        return this.measure.measureText(words);
    };

    Pen.prototype.fillText = function (words, x, y) {
        const [, weight, size, family] = FONT.exec(this.font);
        element(this.group, "text", {
            x: x,
            y: y + TO_BASELINE * Number(size),
            "text-anchor": ANCHORS[this.textAlign],
            "font-family": family,
            "font-size": size,
            ...(weight ? { "font-weight": weight } : {}),
            ...coloured("fill", this.fillStyle),
        }).textContent = words;
    };

    Pen.prototype.file = function () {
        const text = new XMLSerializer().serializeToString(this.root);
        return new Blob([text], { type: "image/svg+xml" });
    };

    timeline.pen = (width, height, title, font) => new Pen(width, height, title, font);

    // --- Lanes ---

    // Rectangles by colour, with integer coordinates; adjacent ones are merged.
    function Shapes() {
        this.byColour = new Map();
    }

    Shapes.prototype.rect = function (colour, left, right, top, bottom) {
        if (right <= left || bottom <= top) {
            return;
        }
        const own = this.byColour.get(colour) || [];
        this.byColour.set(colour, own);
        const last = own.at(-1);
        if (last && last.right === left && last.top === top && last.bottom === bottom) {
            last.right = right;
        } else {
            own.push({ left: left, right: right, top: top, bottom: bottom });
        }
    };

    // Relative coordinates keep the file small. An outline ends at its start.
    function outlines(rects) {
        let [x, y] = [0, 0];
        const parts = rects.map(function (one) {
            const [wide, high] = [one.right - one.left, one.bottom - one.top];
            const part = `m${one.left - x} ${one.top - y}h${wide}v${high}h${-wide}z`;
            [x, y] = [one.left, one.top];
            return part;
        });
        return parts.join("");
    }

    Shapes.prototype.into = function (group) {
        for (const [colour, rects] of this.byColour) {
            element(group, "path", { fill: timeline.hex(colour), d: outlines(rects) });
        }
    };

    // Draws the stages of a step one below the other, as shares of the lane.
    function stacked(shapes, ends, cell, left, right, top, bottom, colours) {
        const unit = bottom - top < LOW_LANE * FINE ? FINE : FINE / 2;
        let from = top;
        colours.forEach(function (colour, stage) {
            const part = ends[cell * colours.length + stage];
            const to = top + Math.round((part * (bottom - top)) / unit) * unit;
            shapes.rect(colour, left, right, from, Math.min(to, bottom));
            from = Math.max(from, Math.min(to, bottom));
        });
    }

    function sideBySide(shapes, ends, cell, x, begin, end, top, bottom, colours) {
        let from = x(begin);
        colours.forEach(function (colour, stage) {
            const to = x(begin + ends[cell * colours.length + stage] * (end - begin));
            shapes.rect(colour, from, to, top, bottom);
            from = Math.max(from, to);
        });
    }

    // Draws the cells of a lane as on the canvas.
    function lane(scene, inks, number, ends, top, bottom, x) {
        const { answer, view } = scene;
        const [low, high] = [FINE * top, FINE * bottom];
        const shapes = new Shapes();
        const marks = new Shapes();
        const tall = FINE * timeline.markHeight(bottom - top, 1);
        for (let cell = timeline.cellAfter(answer, view.begin); cell < answer.cells; cell++) {
            const [begin, end] = [answer.cellBegin[cell], answer.cellEnd[cell]];
            if (begin >= view.end) {
                break;
            }
            const [left, right] = [x(begin), x(end)];
            const at = number * answer.cells + cell;
            if (isNaN(ends[cell * inks.colours.length])) {
                if (timeline.members(answer, number, cell)) {
                    shapes.rect(inks.blank, left, right, low, high);
                }
            } else if (inks.lateness) {
                shapes.rect(timeline.heat(answer, at, inks), left, right, low, high);
            } else if (scene.bars) {
                sideBySide(shapes, ends, cell, x, begin, end, low, high, inks.colours);
            } else {
                stacked(shapes, ends, cell, left, right, low, high, inks.colours);
            }
            if (!inks.lateness && !scene.bars && answer.latest[at] >= inks.lateFrom) {
                marks.rect(inks.late, left, Math.max(right, left + 2 * FINE), low, low + tall);
            }
        }
        return [shapes, marks];
    }

    timeline.lanes = function (pen, scene, inks) {
        const { answer, head, plot, view } = scene;
        if (!answer) {
            return;
        }
        pen.save();
        pen.beginPath();
        pen.rect(plot.left, plot.top, plot.width, plot.height);
        pen.clip();
        pen.translate(plot.left, plot.top);
        const lanes = element(pen.group, "g", { transform: `scale(${1 / FINE})`, class: "lanes" });
        const ends = new Float32Array(answer.cells * inks.colours.length);
        const clamped = (value) => Math.min(Math.max(value, 0), plot.width);
        const x = (time) => Math.round(FINE * clamped(scene.x(time) - plot.left));
        for (let number = 0; number < answer.lanes; number++) {
            const [top, bottom] = timeline.laneSpan(answer, view, number, plot.height);
            if (bottom <= 0 || top >= plot.height) {
                continue;
            }
            timeline.shares(answer, number, ends);
            const { who, where } = timeline.laneName(head, answer, number);
            const group = element(lanes, "g", { class: "lane" });
            element(group, "title", {}).textContent = `${who}, ${where}`;
            lane(scene, inks, number, ends, top, bottom, x).forEach((shapes) => shapes.into(group));
        }
        pen.restore();
    };
})();
