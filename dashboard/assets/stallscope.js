// What only the browser knows: its colour scheme, the window's title, where the focus is.
(function () {
    "use strict";

    const root = document.documentElement;
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

            figureFor: function (current, figures) {
                const own = current && figures ? figures[current] : null;
                if (!own) {
                    return window.dash_clientside.no_update;
                }
                // A finger that drags over a picture scrolls the page.
                const coarse = window.matchMedia("(pointer: coarse)").matches;
                return {
                    // Where only the colours differ, the other scheme has the data.
                    data: own.data || figures.light.data,
                    layout: coarse ? Object.assign({}, own.layout, { dragmode: false }) : own.layout,
                };
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
