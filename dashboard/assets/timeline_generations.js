// The generations of an elastic job: their starts, numbers and sizes above the lanes.
(function () {
    "use strict";

    const timeline = (window.stallscopeTimeline = window.stallscopeTimeline || {});
    const ABOVE_LANES = 46; // pixels from the middle of the names down to the lanes, without events
    const HALF = 8;
    const MARGIN = 6;
    const measure = document.createElement("canvas").getContext("2d");

    // The height of the names above the lanes; 0 for a single generation.
    timeline.generationsHeight = (head) => (head.generations.length ? 20 : 0);

    const sizeOf = ({ size }) => timeline.whole(size) + (size === 1 ? " rank" : " ranks");

    timeline.generationName = (generation) => "generation " + generation.number + " (" + sizeOf(generation) + ")";

    timeline.generationSentence = (generation) => generation.words + ".";

    const middle = (scene) => scene.plot.top - ABOVE_LANES - timeline.eventsHeight(scene.head);

    // The generations in view, with the place of their names. A name ends before the next generation begins;
    // it starts with its generation, or earlier if there is no space after that.
    function inView(scene) {
        const { plot, head } = scene;
        measure.font = scene.font;
        let free = plot.left;
        const found = [];
        head.generations.forEach(function (generation, at) {
            const next = head.generations[at + 1];
            const left = Math.max(scene.x(generation.begin), plot.left);
            const right = next ? Math.min(scene.x(next.begin), plot.right) : plot.right;
            if (right <= left) {
                return;
            }
            const until = right - (next ? MARGIN : 0);
            const short = generation.number + ": ";
            const long = short + sizeOf(generation);
            const forms = ["generation " + long, long, short + generation.size];
            const words = forms.find((one) => measure.measureText(one).width <= until - free) || "";
            const width = measure.measureText(words).width;
            const x = Math.min(left + (left > plot.left ? MARGIN : 0), until - width);
            found.push({ generation: generation, left: left, right: right, words: words, x: x, width: width });
            free = words ? x + width + 2 * MARGIN : free;
        });
        return found;
    }

    timeline.generations = function (draw, scene) {
        const { plot, head, colours } = scene;
        const y = middle(scene);
        for (const one of inView(scene)) {
            const x = scene.x(one.generation.begin);
            draw.fillStyle = colours.text;
            if (one.generation !== head.generations[0] && x >= plot.left - 1) {
                // Names that start earlier stand above the line.
                const top = one.x < x ? y + HALF : y - HALF;
                draw.fillRect(Math.round(x) - 1, top, 2, plot.bottom - top);
            }
            draw.textAlign = "left";
            draw.textBaseline = "middle";
            draw.fillText(one.words, one.x, y);
        }
    };

    // The generation with its name, or its span, at a point.
    timeline.generationsAt = function (scene, x, y) {
        if (Math.abs(y - middle(scene)) > HALF) {
            return [];
        }
        const shown = inView(scene);
        const named = shown.find((one) => one.x <= x && x <= one.x + one.width);
        const found = named || shown.find((one) => one.left <= x && x <= one.right);
        return found ? [found.generation] : [];
    };
})();
