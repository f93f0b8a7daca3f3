// What only the browser knows: its colour scheme, the window's title, where the focus is.
(function () {
    "use strict";

    const root = document.documentElement;
    const NARROW = 600;
    const FEW_TICKS = 6;
    let watching = false;
    let place = null;
    let focused = "";

    document.addEventListener("focusin", function (event) {
        focused = event.target.id;
    });

    function focusOn(element) {
        if (element) {
            element.focus({ preventScroll: true });
        }
    }

    function scheme() {
        return root.getAttribute("data-mantine-color-scheme") === "dark" ? "dark" : "light";
    }

    // On a telephone fewer ticks, so that their words neither touch nor lean.
    function fitting(layout) {
        if (window.innerWidth > NARROW) {
            return layout;
        }
        const axis = Object.assign({}, layout.xaxis, { nticks: 4, tickangle: 0 });
        if (axis.tickvals && axis.tickvals.length > FEW_TICKS) {
            const every = Math.ceil(axis.tickvals.length / FEW_TICKS);
            const kept = (_, at) => at % every === 0;
            axis.tickvals = axis.tickvals.filter(kept);
            axis.ticktext = axis.ticktext && axis.ticktext.filter(kept);
        }
        return Object.assign(layout, { xaxis: axis });
    }

    // Ranges of axes by picture and axis; another page's are forgotten.
    const views = { path: "", of: {} };

    function viewOf(name) {
        if (views.path !== window.location.pathname) {
            Object.assign(views, { path: window.location.pathname, of: {} });
        }
        return (views.of[name] = views.of[name] || {});
    }

    function viewed(layout, name) {
        for (const [axis, range] of Object.entries(viewOf(name))) {
            if (range.length === 2) {
                layout[axis] = Object.assign({}, layout[axis], { range: range, autorange: false });
            }
        }
        return layout;
    }

    // The address's query with another value of one name, or without it.
    function searchWith(name, chosen) {
        const query = new URLSearchParams(window.location.search);
        if ((chosen || null) === query.get(name)) {
            return window.dash_clientside.no_update;
        }
        query.delete(name);
        if (chosen) {
            query.set(name, chosen);
        }
        const search = query.toString();
        return search ? "?" + search : "";
    }

    window.dash_clientside = Object.assign({}, window.dash_clientside, {
        stallscope: {
            // The system's scheme can change while the page is open: the switch does not tell, the root does.
            followColourScheme: function () {
                if (!watching) {
                    watching = true;
                    new MutationObserver(function () {
                        window.dash_clientside.set_props("colour-scheme", { data: scheme() });
                    }).observe(root, { attributeFilter: ["data-mantine-color-scheme"] });
                }
                return scheme();
            },

            figureFor: function (current, figures, id) {
                const own = current && figures ? figures[current] : null;
                if (!own) {
                    return window.dash_clientside.no_update;
                }
                // Where only the colours differ, the other scheme has the data.
                const data = own.data || figures.light.data;
                window.stallscopeSave.knows(id.name, figures.csv, data);
                const layout = Object.assign({}, own.layout);
                // A finger that drags over a picture scrolls the page.
                if (window.matchMedia("(pointer: coarse)").matches) {
                    layout.dragmode = false;
                }
                return { data: data, layout: viewed(fitting(layout), id.name) };
            },

            // What somebody has zoomed to stays where the picture is drawn anew: for another baseline,
            // in other colours, with further steps.
            keepView: function (change, id) {
                const kept = viewOf(id.name);
                for (const [key, value] of Object.entries(change || {})) {
                    const [axis, what] = key.split(/[.[]/);
                    if (!/^[xy]axis$/.test(axis)) {
                        continue;
                    }
                    const end = /\[([01])\]$/.exec(key);
                    if (what === "autorange") {
                        delete kept[axis];
                    } else if (end) {
                        (kept[axis] = kept[axis] || [])[Number(end[1])] = value;
                    } else if (what === "range") {
                        kept[axis] = value;
                    }
                }
                return window.dash_clientside.no_update;
            },

            // Dash calls this when the select appears, too, not only when somebody chooses.
            chooseBaseline: function (chosen) {
                return searchWith("baseline", chosen);
            },

            chooseGrouping: function (chosen) {
                return searchWith("by", chosen);
            },

            // Names the window, and keeps the focus where it belongs: a page that comes replaces what
            // had it.
            arriveAt: function (arrived) {
                if (!arrived) {
                    return;
                }
                document.title = arrived.title + " · Stallscope";
                const heading = document.querySelector("#page h1");
                const lost = document.activeElement === document.body;
                if (place !== null && place !== arrived.place) {
                    focusOn(heading);
                } else if (place !== null && lost) {
                    focusOn(document.getElementById(focused) || heading);
                }
                place = arrived.place;
            },
        },
    });
})();
