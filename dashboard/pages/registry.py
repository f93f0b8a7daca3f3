"""All pages."""

from __future__ import annotations

from .base import Page
from .baseline import BaselinePage
from .communication import CommunicationPage
from .compare import ComparePage
from .health import HealthPage
from .live import LivePage
from .overview import OverviewPage
from .runs import RunsPage
from .scaling import ScalingPage
from .step import StepPage
from .stragglers import StragglersPage
from .timeline import TimelinePage

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
