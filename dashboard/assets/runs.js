// The list of runs: how its cells are drawn, and what keys and the address do. Texts only ever become
// text nodes.
(function () {
    "use strict";

    const GRID = "runs-grid";
    const SEARCH = "runs-search";
    const NARROW = window.matchMedia("(max-width: 48em)");
    const LEFT_OUT_WHERE_NARROW = ["step", "throughput", "gap", "trend", "ranks", "age", "source"];
    // The list's own path: the dashboard may be served below another one.
    let home = null;
    const TREND = { width: 78, height: 26, inset: 3 };

    function e(kind, props, ...children) {
        return window.React.createElement(kind, props, ...children);
    }

    function noUpdate() {
        return window.dash_clientside.no_update;
    }

    function withGrid(act) {
        window.dash_ag_grid.getApiAsync(GRID).then(function (api) {
            if (!api.isDestroyed()) {
                act(api);
            }
        });
    }

    // Without loading the app again.
    function goTo(address) {
        window.history.pushState({}, "", address);
        window.dispatchEvent(new CustomEvent("_dashprivate_pushstate"));
        window.scrollTo(0, 0);
    }

    function follow(event) {
        if (!(event.metaKey || event.shiftKey || event.altKey || event.ctrlKey)) {
            event.preventDefault();
            goTo(event.currentTarget.getAttribute("href"));
        }
    }

    function bar(run) {
        if (!run.shares.length) {
            return null;
        }
        const pieces = run.shares.map(function (share) {
            return e("span", {
                key: share.name,
                className: "stage-" + share.name,
                style: { flexGrow: share.value },
            });
        });
        return e("span", { className: "run-bar", role: "img", "aria-label": run.said, title: run.said }, pieces);
    }

    function line(trend) {
        const low = Math.min(...trend);
        const high = Math.max(...trend);
        const across = (TREND.width - 2 * TREND.inset) / (trend.length - 1);
        // What differs by a few percent is flat.
        const range = Math.max(high - low, 0.2 * high) || 1;
        const up = (TREND.height - 2 * TREND.inset) / range;
        const middle = (low + high) / 2;
        return trend.map(function (value, at) {
            return [TREND.inset + at * across, TREND.height / 2 - (value - middle) * up];
        });
    }

    const cells = {
        RunName: function (props) {
            const run = props.data;
            if (!run) {
                return e("span", { className: "run-quiet" }, "…");
            }
            return e(
                "span",
                { className: "run-lines" },
                e(
                    "span",
                    { className: "run-title" },
                    e("a", { href: run.href, onClick: follow, tabIndex: -1, title: run.name }, run.name),
                    run.synthetic ? e("span", { className: "run-badge" }, "synthetic") : null
                ),
                e("span", { className: "run-quiet only-wide", title: run.about }, run.about),
                e("span", { className: "run-quiet only-narrow" }, run.figures)
            );
        },

        RunVerdict: function (props) {
            const run = props.data;
            if (!run) {
                return null;
            }
            return e(
                "span",
                { className: "run-lines" },
                e(
                    "span",
                    { className: "run-verdict", title: run.verdict },
                    run.stage ? e("span", { className: "swatch stage-" + run.stage }) : null,
                    e("span", { className: run.stage ? "" : "run-quiet" }, run.verdict)
                ),
                e("span", { className: "only-narrow" }, bar(run))
            );
        },

        RunStep: function (props) {
            const run = props.data;
            return run ? e("span", { className: "run-step" }, bar(run), e("span", null, run.step)) : null;
        },

        RunTrend: function (props) {
            const run = props.data;
            if (!run || run.trend.length < 2) {
                return null;
            }
            const points = line(run.trend);
            const [x, y] = points[points.length - 1];
            return e(
                "svg",
                {
                    className: "run-trend",
                    width: TREND.width,
                    height: TREND.height,
                    role: "img",
                    "aria-label": run.trendSaid,
                },
                e("title", null, run.trendSaid),
                e("polyline", { points: points.map((point) => point.join(",")).join(" ") }),
                e("circle", { cx: x, cy: y, r: 2.5 })
            );
        },
    };
    window.dashAgGridComponentFunctions = Object.assign(window.dashAgGridComponentFunctions || {}, cells);

    function fit() {
        withGrid(function (api) {
            api.setColumnsVisible(LEFT_OUT_WHERE_NARROW, !NARROW.matches);
        });
    }

    function openOnEnter(event) {
        if (event.event.key === "Enter" && event.data) {
            event.event.preventDefault();
            goTo(event.data.href);
        }
    }

    // The list keeps its search in the address by itself; this is for somebody else's change of it.
    function obeyAddress() {
        const input = document.getElementById(SEARCH);
        const wanted = new URLSearchParams(window.location.search);
        if (window.location.pathname !== home || !input) {
            return;
        }
        if (input.value !== (wanted.get("search") || "")) {
            window.dash_clientside.set_props(SEARCH, { value: wanted.get("search") || "" });
        }
        withGrid(function (api) {
            const sort = wanted.get("order") === "desc" ? "desc" : "asc";
            const state = wanted.get("sort") ? [{ colId: wanted.get("sort"), sort: sort }] : [];
            api.applyColumnState({ state: state, defaultState: { sort: null } });
        });
    }

    NARROW.addEventListener("change", function () {
        if (document.getElementById(GRID)) {
            fit();
        }
    });
    window.addEventListener("_dashprivate_pushstate", obeyAddress);

    window.dash_clientside = Object.assign({}, window.dash_clientside, {
        runs: {
            begin: function () {
                withGrid(function (api) {
                    api.addEventListener("cellKeyDown", openOnEnter);
                    const root = document.querySelector("#" + GRID + " [role=grid], #" + GRID + " [role=treegrid]");
                    if (root) {
                        root.setAttribute("aria-label", "Runs");
                    }
                });
                fit();
                return noUpdate();
            },

            search: function () {
                withGrid(function (api) {
                    if (api.getDisplayedRowCount()) {
                        api.ensureIndexVisible(0);
                    }
                    api.purgeInfiniteCache();
                });
            },

            fillIn: function () {
                const come = window.dash_clientside.callback_context.triggered;
                withGrid(function (api) {
                    for (const one of come) {
                        const node = one.value && api.getRowNode(one.value.id);
                        if (node) {
                            node.setData(one.value);
                        }
                    }
                });
            },

            // The page is there already: it must not be made again because its address has changed.
            keepInAddress: function (address) {
                if (!address) {
                    return;
                }
                const whole = new URL(address, window.location.href);
                home = whole.pathname;
                if (window.location.pathname === home && window.location.search !== whole.search) {
                    window.history.replaceState(window.history.state, "", address);
                }
            },

            clear: function (clicks) {
                return clicks ? "" : noUpdate();
            },
        },
    });
})();
