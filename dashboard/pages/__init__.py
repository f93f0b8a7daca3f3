"""The pages, one file per page, and their list."""

from .baseline_page import BaselinePage
from .communication_page import CommunicationPage
from .compare_page import ComparePage
from .health_page import HealthPage
from .live_page import LivePage
from .overview_page import OverviewPage
from .run_page import Page, View
from .runs_page import RunsPage
from .scaling_page import ScalingPage
from .step_page import StepPage
from .stragglers_page import StragglersPage
from .timeline_page import TimelinePage

__all__ = ["PAGES", "Page", "View"]

PAGES: tuple[Page, ...] = (
    RunsPage(),
    ComparePage(),
    ScalingPage(),
    OverviewPage(),
    LivePage(),
    TimelinePage(),
    StepPage(),
    StragglersPage(),
    BaselinePage(),
    CommunicationPage(),
    HealthPage(),
)
