// The list of runs: its cells, keys and address. All texts become text nodes, never HTML.
(function () {
    "use strict";

    const GRID = "runs-grid";
    const SEARCH = "runs-search";
    const NARROW = window.matchMedia("(max-width: 48em)");
    const HIDDEN_IF_NARROW = ["step", "throughput", "gap", "trend", "ranks", "age", "source"];
    // The path of the list, which a proxy may serve below another path.
    let listPath = null;
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

    // Browsers paint no pages that are hidden.
    function afterPaint(act) {
        if (document.hidden) {
            act();
        } else {
            window.requestAnimationFrame(function () {
                window.setTimeout(act);
            });
        }
    }

    // Opens a page without reloading the app.
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
        return e("span", { className: "run-bar", role: "img", "aria-label": run.sharesText, title: run.sharesText }, pieces);
    }

    function trendPoints(trend) {
        const low = Math.min(...trend);
        const high = Math.max(...trend);
        const xStep = (TREND.width - 2 * TREND.inset) / (trend.length - 1);
        // Differences of a few percent are drawn flat.
        const range = Math.max(high - low, 0.2 * high) || 1;
        const yScale = (TREND.height - 2 * TREND.inset) / range;
        const middle = (low + high) / 2;
        return trend.map(function (value, at) {
            return [TREND.inset + at * xStep, TREND.height / 2 - (value - middle) * yScale];
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
                    e("span", { className: run.why ? "" : "run-quiet" }, run.verdict)
                ),
                run.why ? e("span", { className: "run-quiet", title: run.why }, run.why) : null,
                run.why ? null : e("span", { className: "only-narrow" }, bar(run))
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
            const points = trendPoints(run.trend);
            const [x, y] = points[points.length - 1];
            const picture = e(
                "svg",
                {
                    className: "run-trend",
                    width: TREND.width,
                    height: TREND.height,
                    role: "img",
                    "aria-label": run.trendText,
                },
                e("title", null, run.trendText),
                e("polyline", { points: points.map((point) => point.join(",")).join(" ") }),
                e("circle", { cx: x, cy: y, r: 2.5 })
            );
            const title = "Compare the runs of this job over time";
            return e("a", { href: run.trendHref, onClick: follow, tabIndex: -1, title: title }, picture);
        },
    };
    window.dashAgGridComponentFunctions = Object.assign(window.dashAgGridComponentFunctions || {}, cells);

    function fitColumns() {
        withGrid(function (api) {
            api.setColumnsVisible(HIDDEN_IF_NARROW, !NARROW.matches);
        });
    }

    function openOnEnter(event) {
        if (event.event.key === "Enter" && event.data) {
            event.event.preventDefault();
            goTo(event.data.href);
        }
    }

    // Applies an address that a link or the history has set. The list writes its own search itself.
    function applyAddress() {
        const input = document.getElementById(SEARCH);
        const query = new URLSearchParams(window.location.search);
        if (window.location.pathname !== listPath || !input) {
            return;
        }
        if (input.value !== (query.get("search") || "")) {
            window.dash_clientside.set_props(SEARCH, { value: query.get("search") || "" });
        }
        withGrid(function (api) {
            const sort = query.get("order") === "desc" ? "desc" : "asc";
            const state = query.get("sort") ? [{ colId: query.get("sort"), sort: sort }] : [];
            api.applyColumnState({ state: state, defaultState: { sort: null } });
        });
    }

    NARROW.addEventListener("change", function () {
        if (document.getElementById(GRID)) {
            fitColumns();
        }
    });
    window.addEventListener("_dashprivate_pushstate", applyAddress);

    window.dash_clientside = Object.assign({}, window.dash_clientside, {
        runs: {
            setUp: function () {
                withGrid(function (api) {
                    api.addEventListener("cellKeyDown", openOnEnter);
                    const root = document.querySelector("#" + GRID + " [role=grid], #" + GRID + " [role=treegrid]");
                    if (root) {
                        root.setAttribute("aria-label", "Runs");
                    }
                });
                fitColumns();
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

            // Places a component for each run that waits for its analysis, once the rows are painted.
            awaitAnalyses: function (ids) {
                if (!ids) {
                    return noUpdate();
                }
                const components = ids.map(function (id) {
                    return { type: "Store", namespace: "dash_core_components", props: { id: id } };
                });
                return new Promise(function (resolve) {
                    afterPaint(function () {
                        resolve(components);
                    });
                });
            },

            // Once all are analysed, the list is requested again if they may belong elsewhere in it.
            fillIn: function (rows, undecided) {
                const analysed = window.dash_clientside.callback_context.triggered;
                withGrid(function (api) {
                    for (const { value } of analysed) {
                        const node = value && api.getRowNode(value.id);
                        if (node) {
                            node.setData(value);
                        }
                    }
                    // Rows of one job need each other's analyses for their trends and baselines.
                    if ((undecided || rows.length > 1) && rows.length && rows.every(Boolean)) {
                        api.getDisplayedRowCount() ? api.refreshInfiniteCache() : api.purgeInfiniteCache();
                    }
                });
            },

            // Changes the address without Dash, which would render the page again.
            keepInAddress: function (address) {
                if (!address) {
                    return;
                }
                const url = new URL(address, window.location.href);
                listPath = url.pathname;
                if (window.location.pathname === listPath && window.location.search !== url.search) {
                    window.history.replaceState(window.history.state, "", address);
                }
            },

            clear: function (clicks) {
                return clicks ? "" : noUpdate();
            },
        },
    });
})();
