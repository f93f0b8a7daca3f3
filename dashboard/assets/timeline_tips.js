// The timeline's tooltip.
(function () {
    "use strict";

    const timeline = window.stallscopeTimeline;
    const Timeline = timeline.Timeline;

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
            swatch.style.setProperty("--colour", `light-dark(${this.head.colours[stage.name].join(", ")})`);
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
})();
