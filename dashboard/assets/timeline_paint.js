// Draws the lanes pixel by pixel: a thousand ranks take a few milliseconds.
(function () {
    "use strict";

    const timeline = (window.stallscopeTimeline = window.stallscopeTimeline || {});
    // Wider steps show their stages side by side, in the order of time.
    const WIDE_STEP = 9;
    const STAGES = 5;

    // Whether a view shows single steps with their stages side by side.
    timeline.sideBySide = function (answer, view, width) {
        const middle = answer.cells >> 1;
        const step = answer.cellEnd[middle] - answer.cellBegin[middle];
        return answer.stepsPerCell === 1 && (step / (view.end - view.begin)) * width >= WIDE_STEP;
    };

    // The position of a lane in the plot: [top, bottom] in pixels, without the margin.
    timeline.laneSpan = function (answer, view, lane, height) {
        const perRow = height / (view.last - view.first);
        const top = Math.round((answer.edges[lane] - view.first) * perRow);
        const bottom = Math.round((answer.edges[lane + 1] - view.first) * perRow);
        const margin = bottom - top >= 20 ? 3 : bottom - top >= 7 ? 1 : 0;
        return [top, bottom - margin];
    };

    // The height of the mark of a late step.
    timeline.markHeight = (height, ratio) => Math.max(2 * ratio, Math.min(4 * ratio, height / 3));

    timeline.packed = function (colour) {
        const [red, green, blue] = [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));
        return ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0;
    };

    timeline.hex = function (packed) {
        const parts = [0, 8, 16].map((by) => ((packed >> by) & 255).toString(16).padStart(2, "0"));
        return "#" + parts.join("");
    };

    // The cell of each pixel column; -1 if there is none.
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

    // The end of each stage as a share of the cell; NaN if nothing was measured.
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

    // The colour of a cell by its latest step. Steps that get a mark have the last two colours.
    timeline.heat = function (answer, at, picture) {
        const late = Math.max(answer.latest[at], 0);
        const scale = picture.heat;
        const place = (late / picture.lateFrom) * (scale.length - 2);
        return scale[Math.min(Math.floor(place), scale.length - 1)];
    };

    function fill(line, cells, colourOf) {
        let [cell, colour] = [-2, 0];
        for (let x = 0; x < cells.length; x++) {
            if (cells[x] !== cell) {
                cell = cells[x];
                colour = cell < 0 ? null : colourOf(cell);
            }
            if (colour !== null) {
                line[x] = colour;
            }
        }
    }

    // Draws an answer over the existing pixels; pixels without a cell stay as they are.
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
            const empty = (cell) => (timeline.members(answer, lane, cell) ? picture.blank : picture.absent);
            const put = function (y, colourOf) {
                line.set(picture.background(y, width));
                fill(line, cells, (cell) => (blank(cell) ? empty(cell) : colourOf(cell)));
                pixels.set(line, y * width);
            };
            if (picture.lateness) {
                put(low, (cell) => timeline.heat(answer, lane * answer.cells + cell, picture));
            } else if (bars) {
                line.set(picture.background(low, width));
                for (let x = 0; x < width; x++) {
                    const cell = cells[x];
                    if (cell >= 0) {
                        const begin = answer.cellBegin[cell];
                        const part =
                            (view.begin + (x + 0.5) * perPixel - begin) / (answer.cellEnd[cell] - begin);
                        line[x] = blank(cell)
                            ? empty(cell)
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

    // Marks late steps at the upper edge of their cells, so that one among hundreds stays visible.
    function mark(pixels, width, low, high, top, bottom, cells, answer, lane, picture) {
        const tall = timeline.markHeight(bottom - top, picture.ratio);
        const until = Math.min(Math.round(top + tall), high);
        for (let x = 0; x < width; x++) {
            const cell = cells[x];
            if (cell >= 0 && answer.latest[lane * answer.cells + cell] >= picture.lateFrom) {
                // At least two pixels: narrower marks are hard to see.
                const wide = Math.min(Math.ceil(2 * picture.ratio), width - x);
                for (let y = low; y < until; y++) {
                    pixels.fill(picture.late, y * width + x, y * width + x + wide);
                }
            }
        }
    }
})();
