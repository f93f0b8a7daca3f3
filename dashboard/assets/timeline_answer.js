// Decodes parts of a run that the server sends: JSON, then arrays.
(function () {
    "use strict";

    const timeline = (window.stallscopeTimeline = window.stallscopeTimeline || {});
    const MISSING = 65535;
    const ARRAYS = {
        f8: Float64Array,
        f4: Float32Array,
        i4: Int32Array,
        u2: Uint16Array,
    };

    function values(array, scale) {
        if (!scale) {
            return array;
        }
        const [low, unit] = scale;
        return Float32Array.from(array, (whole) => (whole === MISSING ? NaN : low + whole * unit));
    }

    timeline.decode = function (buffer) {
        const length = new DataView(buffer).getUint32(0, true);
        const head = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length)));
        const found = {};
        for (const [name, [kind, count, at]] of Object.entries(head.arrays)) {
            const array = new ARRAYS[kind](buffer, 4 + length + at, count);
            found[name] = values(array, head.scales && head.scales[name]);
        }
        const lanes = head.edges.length - 1;
        const size = lanes * head.cells;
        return Object.assign(head, found, {
            lanes: lanes,
            stages: [0, 1, 2, 3].map((at) => found.stages.subarray(at * size, (at + 1) * size)),
            late: found.late.subarray(0, size),
            latest: found.late.subarray(size),
        });
    };

    // The first cell that ends after a time; the number of cells if there is none.
    timeline.cellAfter = function (answer, time) {
        let low = 0;
        let high = answer.cells;
        while (low < high) {
            const middle = (low + high) >> 1;
            if (answer.cellEnd[middle] > time) {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        return low;
    };

    // The cell at a time; -1 between cells and outside of the answer.
    timeline.cellAt = function (answer, time) {
        const cell = timeline.cellAfter(answer, time);
        return cell < answer.cells && answer.cellBegin[cell] <= time ? cell : -1;
    };

    // The ranks of a lane in the generation of a cell.
    timeline.members = function (answer, lane, cell) {
        const generations = answer.members.length / answer.lanes;
        return answer.members[lane * generations + answer.generation[cell]];
    };

    // The lane that contains a row; -1 if there is none.
    timeline.laneOf = function (answer, row) {
        const edges = answer.edges;
        if (row < edges[0] || row >= edges[edges.length - 1]) {
            return -1;
        }
        let lane = 0;
        while (edges[lane + 1] <= row) {
            lane += 1;
        }
        return lane;
    };
})();
