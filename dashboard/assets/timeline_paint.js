// The lanes, pixel by pixel: a thousand ranks are drawn in a few milliseconds.
(function () {
    "use strict";

    const timeline = (window.stallscopeTimeline = window.stallscopeTimeline || {});
    // Steps that are wider get their stages side by side, as they followed each other.
    const WIDE_STEP = 9;
    const STAGES = 5;

    // Whether a view shows every step by itself, stages side by side.
    timeline.sideBySide = function (answer, view, width) {
        const middle = answer.cells >> 1;
        const step = answer.cellEnd[middle] - answer.cellBegin[middle];
        return answer.stepsPerCell === 1 && (step / (view.end - view.begin)) * width >= WIDE_STEP;
    };

    // Where lanes lie: [top, bottom] in pixels of a plot, with room between them.
    timeline.laneSpan = function (answer, view, lane, height) {
        const perRow = height / (view.last - view.first);
        const top = Math.round((answer.edges[lane] - view.first) * perRow);
        const bottom = Math.round((answer.edges[lane + 1] - view.first) * perRow);
        const room = bottom - top >= 20 ? 3 : bottom - top >= 7 ? 1 : 0;
        return [top, bottom - room];
    };

    // How tall the mark of a late step is in a lane.
    timeline.markHeight = (height, ratio) => Math.max(2 * ratio, Math.min(4 * ratio, height / 3));

    timeline.packed = function (colour) {
        const [red, green, blue] = [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));
        return ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0;
    };

    timeline.hex = function (packed) {
        const parts = [0, 8, 16].map((by) => ((packed >> by) & 255).toString(16).padStart(2, "0"));
        return "#" + parts.join("");
    };

    // Per pixel column the cell that it shows, -1 where there is none.
    function columns(answer, view, width) {
        const cells = new Int32Array(width).fill(-1);
        const perPixel = (view.end - view.begin) / width;
        let cell = timeline.cellAfter(answer, view.begin);
        for (let x = 0; x < width && cell < answer.cells; x++) {
            const time = view.begin + (x + 0.5) * perPixel;
            while (cell < answer.cells && answer.cellEnd[cell] <= time) {
                cell += 1;
            }
            if (cell < answer.cells && answer.cellBegin[cell] <= time) {
                cells[x] = cell;
            }
        }
        return cells;
    }

    // Where each stage of a cell ends, as a share of the cell; NaN where nothing was measured.
    timeline.shares = function (answer, lane, into) {
        for (let cell = 0; cell < answer.cells; cell++) {
            const at = lane * answer.cells + cell;
            const own = answer.stages.map((stage) => Math.max(stage[at], 0));
            const whole = own[0] + own[1] + own[2] + own[3] + answer.allreduce[cell];
            let sum = 0;
            for (let stage = 0; stage < STAGES - 1; stage++) {
                sum += own[stage];
                into[cell * STAGES + stage] = sum / whole;
            }
            into[cell * STAGES + STAGES - 1] = isNaN(sum) ? NaN : 1;
        }
    };

    function stageAt(ends, cell, part) {
        let stage = 0;
        while (stage < STAGES - 1 && part >= ends[cell * STAGES + stage]) {
            stage += 1;
        }
        return stage;
    }

    // A cell's colour by its latest step; what deserves a mark has the last two colours.
    timeline.heat = function (answer, at, picture) {
        const late = Math.max(answer.latest[at], 0);
        const scale = picture.heat;
        const place = (late / picture.lateFrom) * (scale.length - 2);
        return scale[Math.min(Math.floor(place), scale.length - 1)];
    };

    function fill(line, cells, colourOf) {
        let [known, colour] = [-2, 0];
        for (let x = 0; x < cells.length; x++) {
            if (cells[x] !== known) {
                known = cells[x];
                colour = known < 0 ? null : colourOf(known);
            }
            if (colour !== null) {
                line[x] = colour;
            }
        }
    }

    // Draws an answer over what is there; where it has nothing, what is there stays.
    timeline.paint = function (pixels, width, height, answer, view, picture) {
        const cells = columns(answer, view, width);
        const ends = new Float32Array(answer.cells * STAGES);
        const bars = timeline.sideBySide(answer, view, width / picture.ratio);
        const perPixel = (view.end - view.begin) / width;
        const line = new Uint32Array(width);
        const covered = cells.some((cell) => cell >= 0);
        for (let lane = 0; covered && lane < answer.lanes; lane++) {
            const [top, bottom] = timeline.laneSpan(answer, view, lane, height);
            if (bottom <= 0 || top >= height) {
                continue;
            }
            const [low, high] = [Math.max(top, 0), Math.min(bottom, height)];
            timeline.shares(answer, lane, ends);
            const blank = (cell) => isNaN(ends[cell * STAGES]);
            const put = function (y, colourOf) {
                line.set(picture.behind(y, width));
                fill(line, cells, (cell) => (blank(cell) ? picture.blank : colourOf(cell)));
                pixels.set(line, y * width);
            };
            if (picture.lateness) {
                put(low, (cell) => timeline.heat(answer, lane * answer.cells + cell, picture));
            } else if (bars) {
                line.set(picture.behind(low, width));
                for (let x = 0; x < width; x++) {
                    const cell = cells[x];
                    if (cell >= 0) {
                        const begin = answer.cellBegin[cell];
                        const part =
                            (view.begin + (x + 0.5) * perPixel - begin) / (answer.cellEnd[cell] - begin);
                        line[x] = blank(cell)
                            ? picture.blank
                            : picture.colours[stageAt(ends, cell, part)];
                    }
                }
                pixels.set(line, low * width);
            } else {
                for (let y = low; y < high; y++) {
                    const part = (y + 0.5 - top) / (bottom - top);
                    put(y, (cell) => picture.colours[stageAt(ends, cell, part)]);
                }
                mark(pixels, width, low, high, top, bottom, cells, answer, lane, picture);
                continue;
            }
            for (let y = low + 1; y < high; y++) {
                pixels.copyWithin(y * width, low * width, (low + 1) * width);
            }
        }
    };

    // One late step among hundreds must not vanish: the upper edge of its cell says that it is there.
    function mark(pixels, width, low, high, top, bottom, cells, answer, lane, picture) {
        const tall = timeline.markHeight(bottom - top, picture.ratio);
        const until = Math.min(Math.round(top + tall), high);
        for (let x = 0; x < width; x++) {
            const cell = cells[x];
            if (cell >= 0 && answer.latest[lane * answer.cells + cell] >= picture.lateFrom) {
                // At least two pixels: cells may be narrower than the eye can find.
                const wide = Math.min(Math.ceil(2 * picture.ratio), width - x);
                for (let y = low; y < until; y++) {
                    pixels.fill(picture.late, y * width + x, y * width + x + wide);
                }
            }
        }
    }
})();
