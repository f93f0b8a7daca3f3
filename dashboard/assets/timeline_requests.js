// The timeline's requests to the server, its address, and its announcements.
(function () {
    "use strict";

    const timeline = window.stallscopeTimeline;
    const LOWEST_LANE = 12; // pixels: enough for a step's shares and the lane's name
    const REQUEST_DELAY = 50; // milliseconds
    const Timeline = timeline.Timeline;

    Timeline.prototype.request = async function () {
        if (this.requesting || !this.plot) {
            return;
        }
        this.requesting = true;
        this.stale = false;
        this.busy(true);
        let failure = "";
        try {
            this.receive(timeline.decode(await this.fetchPart()));
        } catch (error) {
            failure = error.message;
        }
        this.requesting = false;
        if (this.removed.signal.aborted) {
            return;
        }
        if (this.stale) {
            this.request();
        } else if (failure) {
            this.announce(failure);
            this.busy(false);
        } else {
            this.updateAddressSoon();
        }
    };

    // Marks the timeline as busy until drawing, text and address are up to date.
    Timeline.prototype.busy = function (is) {
        this.node.setAttribute("aria-busy", String(is));
    };

    Timeline.prototype.fetchPart = async function () {
        const { begin, end, first, last } = this.view;
        const query = new URLSearchParams({
            begin: begin.toFixed(9),
            end: end.toFixed(9),
            rows: Math.floor(first) + "-" + Math.ceil(last),
            lanes: Math.max(1, Math.floor(this.plot.height / LOWEST_LANE)),
            columns: Math.max(16, Math.round(this.plot.width)),
        });
        if (this.shownGauge()) {
            query.set("gauge", this.shownGauge().key);
        }
        if (this.head.by) {
            query.set("by", this.head.by);
        }
        if (this.head.baseline) {
            query.set("baseline", this.head.baseline);
        }
        const answer = await fetch(this.head.address + "?" + query, { signal: this.removed.signal });
        if (!answer.ok) {
            const body = await answer.json().catch(() => ({}));
            throw new Error(body.error || "The dashboard did not answer.");
        }
        return answer.arrayBuffer();
    };

    Timeline.prototype.receive = function (answer) {
        this.detail = answer;
        const edges = answer.edges;
        const whole = answer.begin <= 0 && answer.end >= this.head.span * (1 - 1e-9);
        if (whole && edges[0] === 0 && edges[edges.length - 1] === this.head.ranks.length) {
            this.base = answer;
        }
        this.drawSoon();
    };

    // Waits for the answer for the current view, so that the saved file shows it.
    Timeline.prototype.upToDate = async function () {
        while (this.requesting || this.stale) {
            await new Promise((done) => setTimeout(done, REQUEST_DELAY));
        }
    };

    // Writes the view to the address without Dash, which would render the page again.
    Timeline.prototype.updateAddress = function () {
        const left = this.removed.signal.aborted || window.location.pathname !== this.path;
        if (left || this.requesting || this.stale) {
            // The last answer names another view; the next one updates the address.
            return;
        }
        const query = new URLSearchParams(window.location.search);
        for (const name of ["from", "to", "rank", "ranks", "show", "gauge"]) {
            query.delete(name);
        }
        const { head, view } = this;
        if (this.detail && this.detail.names) {
            query.set("from", this.detail.names[0]);
            query.set("to", this.detail.names[1]);
        }
        if (this.row !== null) {
            query.set("rank", head.rowNames[this.row]);
        }
        if (view.last - view.first < head.ranks.length) {
            const last = Math.ceil(view.last) - 1;
            query.set("ranks", head.rowNames[Math.floor(view.first)] + "-" + head.rowNames[last]);
        }
        if (this.lateness) {
            query.set("show", "lateness");
        }
        if (this.gauge > 0) {
            query.set("gauge", this.shownGauge().key);
        }
        const search = query.toString();
        const address = this.path + (search ? "?" + search : "");
        if (address !== this.path + window.location.search) {
            window.history.replaceState(window.history.state, "", address);
        }
        if (this.time !== null || this.row !== null) {
            this.announcePosition();
        }
        this.busy(false);
    };

    Timeline.prototype.announce = function (text) {
        if (this.readout.textContent !== text) {
            this.readout.textContent = text;
        }
    };

    Timeline.prototype.announcePosition = function () {
        const place = this.selectedPlace();
        if (this.event && this.event.at === this.time) {
            this.announce(timeline.eventSentence(this.event));
            return;
        }
        if (this.generation && this.generation.begin === this.time) {
            this.announce(timeline.generationSentence(this.generation));
            return;
        }
        const recorded = place.lane >= 0 && place.cell >= 0;
        const text = recorded
            ? timeline.sentence(timeline.describe(this.head, place.answer, place.lane, place.cell))
            : "Nothing was recorded here.";
        this.announce([text, this.gaugeText(place.time)].filter(Boolean).join(" "));
    };
})();
