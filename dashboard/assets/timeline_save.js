// Saves the timeline as an image, and the numbers of the part in view.
(function () {
    "use strict";

    const timeline = window.stallscopeTimeline;
    const Timeline = timeline.Timeline;
    const MARGIN = 12;
    const TITLE = 40;
    const LEGEND_LINE = 22;
    const SWATCH = 12;

    // Lays out the legend in as many lines as it needs.
    function legendLines(draw, names, width) {
        const lines = [[]];
        let x = MARGIN;
        for (const [colour, words] of names) {
            const wide = SWATCH + 22 + draw.measureText(words).width;
            if (x > MARGIN && x + wide > width) {
                lines.push([]);
                x = MARGIN;
            }
            lines.at(-1).push([x, colour, words]);
            x += wide;
        }
        return lines;
    }

    // The frame of an image: title and legend on the page's background.
    function framed(width, height, scene, title, names) {
        const measure = document.createElement("canvas").getContext("2d");
        measure.font = scene.font;
        const wide = width + 2 * MARGIN;
        const lines = legendLines(measure, names, wide);
        const below = MARGIN + lines.length * LEGEND_LINE;
        const high = TITLE + height + below;
        function paint(draw) {
            draw.fillStyle = scene.colours.page;
            draw.fillRect(0, 0, wide, high);
            draw.textAlign = "left";
            draw.textBaseline = "middle";
            draw.fillStyle = scene.colours.text;
            draw.font = scene.font.replace("12px", "600 16px");
            draw.fillText(timeline.shortened(draw, title, width), MARGIN, TITLE / 2);
            draw.font = scene.font;
            lines.forEach(function (line, number) {
                const y = high - below + (number + 0.5) * LEGEND_LINE;
                for (const [x, colour, words] of line) {
                    draw.fillStyle = colour;
                    draw.fillRect(x, y - SWATCH / 2, SWATCH, SWATCH);
                    draw.fillStyle = scene.colours.text;
                    draw.fillText(words, x + SWATCH + 6, y);
                }
            });
        }
        return { width: wide, height: high, paint: paint };
    }

    // The canvas in its frame as PNG.
    timeline.png = function (shown, ratio, scene, title, names) {
        const frame = framed(shown.width / ratio, shown.height / ratio, scene, title, names);
        const canvas = document.createElement("canvas");
        canvas.width = frame.width * ratio;
        canvas.height = frame.height * ratio;
        const draw = canvas.getContext("2d");
        draw.setTransform(ratio, 0, 0, ratio, 0, 0);
        frame.paint(draw);
        draw.setTransform(1, 0, 0, 1, 0, 0);
        draw.drawImage(shown, MARGIN * ratio, TITLE * ratio);
        return new Promise((done) => canvas.toBlob(done, "image/png"));
    };

    // The same as SVG; ``paint`` draws the content of the frame with a pen.
    timeline.svg = function (paint, scene, title, names) {
        const frame = framed(scene.width, scene.height, scene, title, names);
        const pen = timeline.pen(frame.width, frame.height, title, scene.font);
        frame.paint(pen);
        pen.translate(MARGIN, TITLE);
        paint(pen);
        return pen.file();
    };

    const number = (value) => (value < 0 ? "" : value);

    // One row per lane and cell in view; NaN was not measured. Machine metrics and events of other logs
    // follow in their own rows and columns.
    timeline.rows = function (head, answer, view, gauge) {
        const event = head.events.length ? [""] : [];
        const measured = gauge ? timeline.gaugeHeads(gauge) : [];
        const generations = head.generations.length ? ["generation"] : [];
        const pauses = head.pauses.length ? head.pauseNames.map(([name]) => name + ", ms") : [];
        const rows = [
            [
                "ranks",
                head.by ? "places in " + head.by : "hosts",
                "first step",
                "last step",
                "epoch",
                "begin, s",
                "end, s",
                "step, ms",
                ...head.stages.map((name) => head.titles[name] + ", ms"),
                "later than the reference rank, ms",
                "latest step, ms",
                "last rank",
                ...pauses,
                ...generations,
                ...measured,
                ...event.map(() => "other logs"),
            ],
        ];
        for (let lane = 0; lane < answer.lanes; lane++) {
            if (answer.edges[lane] >= view.last || answer.edges[lane + 1] <= view.first) {
                continue;
            }
            const { who, where } = timeline.laneName(head, answer, lane);
            for (let cell = timeline.cellAfter(answer, view.begin); cell < answer.cells; cell++) {
                if (answer.cellBegin[cell] >= view.end) {
                    break;
                }
                const at = lane * answer.cells + cell;
                const measuredCell = !isNaN(answer.stages[0][at]);
                if (!measuredCell && !timeline.members(answer, lane, cell)) {
                    continue;
                }
                rows.push([
                    who.toLowerCase(),
                    where,
                    answer.firstStep[cell],
                    answer.lastStep[cell],
                    number(answer.epoch[cell]),
                    answer.cellBegin[cell].toFixed(6),
                    answer.cellEnd[cell].toFixed(6),
                    answer.total[cell],
                    ...answer.stages.map((stage) => stage[at]),
                    measuredCell ? answer.allreduce[cell] : NaN,
                    answer.late[at],
                    answer.latest[at],
                    head.ranks[answer.last[cell]],
                    ...(pauses.length ? timeline.pausesIn(head, answer, lane, cell).map((sum) => sum.ms) : []),
                    ...generations.map(() => head.generations[answer.generation[cell]].number),
                    ...measured.map(() => ""),
                    ...event,
                ]);
            }
        }
        const columns = rows[0].length;
        const from = columns - event.length - measured.length;
        return [
            ...rows,
            ...timeline.gaugeRows(answer, gauge, view, columns, from),
            ...timeline.eventRows(head, view, columns),
        ];
    };

    // The colours of the picture with their meanings, as on the page.
    Timeline.prototype.legend = function (scene) {
        const { head } = this;
        const pauses = head.pauseNames.map(([name]) => name).join(" or ");
        const late = timeline.amount(head.lateFrom);
        const drawn = head.legend.filter((name) => !this.lateness || head.between.includes(name));
        const names = drawn.map((name) => [scene.colour(name), head.titles[name]]);
        if (head.pauses.length) {
            names.push([scene.colours.text, pauses.charAt(0).toUpperCase() + pauses.slice(1)]);
        }
        if (this.lateness) {
            names.unshift([head.heat.at(-1)[scene.colours.dark ? 1 : 0], late + " later or more"]);
            return names;
        }
        const later = "ater than the reference rank by " + late + " or more";
        if (scene.bars ? head.ranks.length > 1 : head.anyLate) {
            names.push([scene.colour("imbalance"), (scene.bars ? "Last rank, or l" : "L") + later]);
        }
        return names;
    };

    Timeline.prototype.picture = async function (kind) {
        await this.upToDate();
        this.draw();
        const scene = this.scene();
        const names = this.legend(scene);
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
})();
