// Places on the timeline: the cell at a pixel, a time, a row.
(function () {
    "use strict";

    const timeline = window.stallscopeTimeline;
    const Timeline = timeline.Timeline;

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

    Timeline.prototype.placeIn = function (x, y) {
        const { plot } = this;
        const inside = x >= plot.left && x <= plot.right && y >= plot.top && y <= plot.bottom;
        return inside ? this.placeAt(x, y) : null;
    };

    Timeline.prototype.selectedPlace = function () {
        const { begin, end } = this.view;
        return this.place(this.time ?? (begin + end) / 2, this.row ?? Math.floor(this.view.first));
    };

    // The time at a point of the gauge; null outside of it.
    Timeline.prototype.timeInGauge = function (x, y) {
        const [top, bottom] = timeline.gaugeSpan(this.plot);
        const inside = this.shownGauge() && x >= this.plot.left && y >= top && y <= bottom;
        return inside ? this.placeAt(x, y).time : null;
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

    // After a click on a lane's name: zooms into a group, or selects the rank.
    Timeline.prototype.openLane = function (row) {
        const answer = this.detail || this.base;
        const lane = answer ? timeline.laneOf(answer, row) : -1;
        if (lane >= 0 && answer.edges[lane + 1] - answer.edges[lane] > 1) {
            this.setView({ first: answer.edges[lane], last: answer.edges[lane + 1] });
        }
        this.goToRow(row, false);
    };
})();
