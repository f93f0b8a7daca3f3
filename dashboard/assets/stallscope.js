// State of the browser: colour scheme, title of the window, focus, zoom and query.
(function () {
    "use strict";

    const root = document.documentElement;
    const AXES = ["xaxis", "yaxis"];
    const NARROW = 600;
    const FEW_TICKS = 6;
    // Pixels on narrow screens: of a character, between two labels, and beside a chart.
    const CHARACTER_WIDTH = 7;
    const BETWEEN_LABELS = 14;
    const BESIDE_CHART = 66;
    const LINE_WIDTH = 1.4; // of Plotly's line marks, as a multiple of their size
    const SHORT_NAME = 14; // characters
    const SHORT_NAMES_WIDTH = 110; // pixels
    let observed = false;
    let shownPlace = null;
    let focusedId = "";

    document.addEventListener("focusin", function (event) {
        focusedId = event.target.id;
    });

    function focusOn(element) {
        if (element) {
            element.focus({ preventScroll: true });
        }
    }

    function scheme() {
        return root.getAttribute("data-mantine-color-scheme") === "dark" ? "dark" : "light";
    }

    // A colour for light pages and one for dark pages, as CSS writes them.
    const PAIR = /^light-dark\((#\w+|rgba\([^)]*\)), (.*)\)$/;

    // A copy of a part of a figure in the colours of a scheme, which Plotly does not take from CSS.
    function inScheme(part, name, current) {
        if (Array.isArray(part)) {
            return part.map((entry) => inScheme(entry, name, current));
        }
        if (part && typeof part === "object") {
            const copy = ([key, value]) => [key, inScheme(value, key, current)];
            return Object.fromEntries(Object.entries(part).map(copy));
        }
        const coloured = typeof part === "string" && name.includes("color");
        return coloured ? part.replace(PAIR, current === "dark" ? "$2" : "$1") : part;
    }

    // The width of the longest line of labels.
    function widest(labels) {
        const lines = (labels || []).flatMap((label) => String(label).split("<br>"));
        const lengths = lines.map((line) => line.replace(/<[^>]*>/g, "").length);
        return CHARACTER_WIDTH * Math.max(0, ...lengths);
    }

    // The number of ticks below a chart whose labels do not touch on a narrow screen.
    function mostTicks(layout) {
        const names = widest(layout.yaxis && layout.yaxis.ticktext);
        const width = window.innerWidth - BESIDE_CHART - names - ((layout.margin && layout.margin.r) || 0);
        const label = widest(layout.xaxis.ticktext) + BETWEEN_LABELS;
        return Math.max(1, Math.min(FEW_TICKS, Math.floor(width / label)));
    }

    // Draws fewer ticks on narrow screens, so that labels neither touch nor rotate.
    function withFewerTicks(layout) {
        if (window.innerWidth > NARROW) {
            return layout;
        }
        const axis = Object.assign({}, layout.xaxis, { nticks: 4, tickangle: 0 });
        const most = mostTicks(layout);
        if (axis.tickvals && axis.tickvals.length > most) {
            const last = axis.tickvals.length - 1;
            let every = Math.ceil(axis.tickvals.length / most);
            // An axis that starts at zero shows it.
            if (String((axis.ticktext || axis.tickvals)[0]) === "0") {
                for (every = Math.min(every, last); last % every; every += 1);
            }
            // The last label has the unit.
            const kept = (_, at) => (last - at) % every === 0;
            axis.tickvals = axis.tickvals.filter(kept);
            axis.ticktext = axis.ticktext && axis.ticktext.filter(kept);
        }
        return Object.assign(layout, { xaxis: axis });
    }

    // Writes a long name in two lines, and cuts what does not fit into the second.
    function inTwoLines(text) {
        if (text.length <= SHORT_NAME) {
            return text;
        }
        const space = text.lastIndexOf(" ", SHORT_NAME);
        const end = space > 0 ? space : SHORT_NAME;
        const second = text.slice(end).trim();
        return text.slice(0, end) + "<br>" + (second.length > SHORT_NAME ? second.slice(0, SHORT_NAME - 1) + "…" : second);
    }

    // Shortens lines across bars on narrow screens, where they would reach over the next bars.
    function withShortLines(data, layout) {
        if (window.innerWidth > NARROW) {
            return data;
        }
        const names = widest(layout.yaxis && layout.yaxis.ticktext);
        return data.map(function (trace) {
            if (!trace.marker || trace.marker.symbol !== "line-ew") {
                return trace;
            }
            const bars = layout.xaxis.range[1] - layout.xaxis.range[0];
            const room = (window.innerWidth - BESIDE_CHART - names) / bars;
            const size = Math.min(trace.marker.size, Math.floor((0.8 * room) / LINE_WIDTH));
            return Object.assign({}, trace, { marker: Object.assign({}, trace.marker, { size: size }) });
        });
    }

    // Wraps the names of curves on narrow screens, where they would take most of the width.
    function withShortNames(layout) {
        const names = (layout.annotations || []).filter((one) => one.name === "curve");
        if (window.innerWidth > NARROW || !names.length) {
            return layout;
        }
        const annotations = layout.annotations.map((one) =>
            names.includes(one) ? Object.assign({}, one, { text: inTwoLines(one.text), align: "left" }) : one,
        );
        const right = Math.min(layout.margin.r, SHORT_NAMES_WIDTH);
        const margin = Object.assign({}, layout.margin, { r: right });
        return Object.assign(layout, { annotations: annotations, margin: margin });
    }

    // The zoom of the current page: ranges by chart and axis.
    const zoom = { path: "", ranges: {} };

    function rangesOf(name) {
        if (zoom.path !== window.location.pathname) {
            Object.assign(zoom, { path: window.location.pathname, ranges: {} });
        }
        return (zoom.ranges[name] = zoom.ranges[name] || {});
    }

    // The layout of a chart with its zoom; `meta` keeps the ranges without it.
    function withZoom(layout, name) {
        const ranges = rangesOf(name);
        layout.meta = {};
        for (const axis of AXES) {
            layout.meta[axis] = String(layout[axis].range);
            if (ranges[axis]) {
                Object.assign(layout[axis], { range: ranges[axis].slice(), autorange: false });
            }
        }
        return layout;
    }

    // The address's query with another value of a parameter, or without the parameter.
    function searchWith(name, value) {
        const query = new URLSearchParams(window.location.search);
        if ((value || null) === query.get(name)) {
            return window.dash_clientside.no_update;
        }
        query.delete(name);
        if (value) {
            query.set(name, value);
        }
        const search = query.toString();
        return search ? "?" + search : "";
    }

    window.dash_clientside = Object.assign({}, window.dash_clientside, {
        stallscope: {
            // Also follows changes of the system's scheme, which only the root element reflects.
            followColourScheme: function () {
                if (!observed) {
                    observed = true;
                    new MutationObserver(function () {
                        window.dash_clientside.set_props("colour-scheme", { data: scheme() });
                    }).observe(root, { attributeFilter: ["data-mantine-color-scheme"] });
                }
                return scheme();
            },

            figureFor: function (current, figure, id) {
                if (!current || !figure) {
                    return window.dash_clientside.no_update;
                }
                // A copy: Plotly writes into the layout that it draws.
                const { data, layout } = inScheme({ data: figure.data, layout: figure.layout }, "", current);
                window.stallscopeSave.registerFigure(id.name, figure.csv, data);
                // On touch screens, dragging over a chart scrolls the page.
                if (window.matchMedia("(pointer: coarse)").matches) {
                    layout.dragmode = false;
                }
                return {
                    data: withShortLines(data, layout),
                    layout: withZoom(withFewerTicks(withShortNames(layout)), id.name),
                };
            },

            // Records the zoom, to apply it when the chart is drawn again: with another baseline, in other
            // colours, or with more steps.
            //
            // The chart is asked, not the event: of a zoom and a change of size in quick succession, Dash
            // reports only the last.
            keepView: function (_, id) {
                const chart = document.getElementById(JSON.stringify({ name: id.name, type: "chart" }));
                const graph = chart && chart.querySelector(".js-plotly-plot");
                const layout = (graph && graph.layout) || {};
                const ranges = rangesOf(id.name);
                for (const axis of layout.meta ? AXES : []) {
                    const { autorange, range } = layout[axis];
                    const zoomed = !autorange && String(range) !== layout.meta[axis];
                    ranges[axis] = zoomed ? range.slice() : null;
                }
                return window.dash_clientside.no_update;
            },

            // Dash also calls this when the select appears, not only when a user chooses.
            chooseBaseline: function (chosen) {
                return searchWith("baseline", chosen);
            },

            chooseGrouping: function (chosen) {
                return searchWith("by", chosen);
            },

            // Sets the title of the window, and restores the focus, which the page's replacement loses.
            showLoadedPage: function (page) {
                if (!page) {
                    return;
                }
                document.title = page.title + " · Stallscope";
                const heading = document.querySelector("#page h1");
                const lost = document.activeElement === document.body;
                if (shownPlace !== null && shownPlace !== page.place) {
                    focusOn(heading);
                } else if (shownPlace !== null && lost) {
                    focusOn(document.getElementById(focusedId) || heading);
                }
                shownPlace = page.place;
            },
        },
    });
})();
