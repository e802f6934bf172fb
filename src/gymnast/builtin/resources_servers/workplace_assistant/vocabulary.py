"""Words from which the built-in tables are made. All people and companies are fictional."""

from __future__ import annotations

from typing import Final

DOMAIN: Final = "larkfield.example"

FIRST_NAMES: Final = (
    *("Ada", "Bram", "Chidi", "Dalia", "Emre", "Freya", "Goran", "Hana", "Imani", "Jonas", "Keiko", "Luca", "Maren"),
    *("Nadia", "Oskar", "Priya", "Quentin", "Rosa", "Sami", "Tove", "Ugo", "Vera", "Wim", "Ximena", "Yara", "Zoltan"),
    *("Anouk", "Birgit", "Carlos", "Divya", "Elio", "Fatou", "Greta", "Hugo", "Ines", "Jun", "Kofi", "Leila", "Milan"),
    *("Noor", "Otto", "Paula", "Ravi", "Signe", "Tomas", "Uma", "Viggo", "Wanda", "Yusuf", "Zofia", "Arlo", "Beatriz"),
    *("Cyril", "Dorit", "Esben", "Fiona"),
)
LAST_NAMES: Final = (
    *("Mori", "Vandyck", "Okafor", "Haddad", "Yilmaz", "Lindqvist", "Petrov", "Tanaka", "Mwangi", "Brandt", "Sato"),
    *("Ferrari", "Holm", "Rahman", "Nyberg", "Iyer", "Leroy", "Delgado", "Aalto", "Berg", "Conti", "Novak", "Maas"),
    *("Fuentes", "Aziz", "Kovacs", "Renard", "Vogel", "Medina", "Nair", "Greco", "Diallo", "Krause", "Duarte", "Pinto"),
    *("Lim", "Mensah", "Karimi", "Horvat", "Bakker", "Fischer", "Ramos", "Gupta", "Dahl", "Cerny", "Banerjee", "Lund"),
    *("Zielinska", "Demir", "Wolska", "Finch", "Salazar", "Marchand", "Levin", "Skov", "Kerr"),
)
CUSTOMER_FIRST: Final = (
    *("Alma", "Bogdan", "Clio", "Dario", "Edda", "Felix", "Gala", "Henk", "Iris", "Jarek", "Katya", "Lars", "Mina"),
    *("Nils", "Odile", "Pavel", "Rhea", "Stellan", "Tamar", "Urs", "Vida", "Wes", "Yelena", "Zane"),
)
CUSTOMER_LAST: Final = (
    *("Abbott", "Bellweather", "Castellan", "Drummond", "Eastlake", "Farrow", "Goldcrest", "Hathersage", "Ironside"),
    *("Jessop", "Kestrel", "Lowther", "Merriman", "Northcott", "Ollerton", "Pembroke", "Quayle", "Ravenhill"),
    *("Stanhope", "Thistlewood", "Underhay", "Vellacott", "Wetherby", "Yarrow"),
)
CUSTOMER_DOMAINS: Final = (
    *("brightmill.example", "cobaltworks.example", "dunefoundry.example", "elmhouse.example", "foxglove.example"),
    *("granitepeak.example", "harbourlight.example", "inkwell.example"),
)

TOPICS: Final = (
    *("the quarterly budget", "the onboarding guide", "the press kit", "the supplier contract", "the release plan"),
    *("the office move", "the travel policy", "the pricing table", "the training schedule", "the security review"),
    *("the spring campaign", "the support backlog", "the partner survey", "the hiring plan", "the status report"),
    *("the photo archive", "the warranty terms", "the trade fair", "the newsletter", "the data retention rules"),
)
OPENINGS: Final = (
    *("I went through {topic} this morning.", "Thank you for your comments on {topic}.", "A short note on {topic}."),
    *(
        "We are nearly done with {topic}.",
        "There is one open point in {topic}.",
        "Somebody asked me about {topic} today.",
    ),
)
MIDDLES: Final = (
    *("The second section still needs figures from your side.", "I would like to hear your opinion before Thursday."),
    *(
        "Two of the numbers do not add up yet.",
        "The rest looks good to me.",
        "Please have a look when you can.",
    ),
    *("I have put the latest version into the shared folder.", "The deadline has moved by one week."),
)
CLOSINGS: Final = (
    *("Can we speak about it briefly?", "Nothing else from my side.", "Let me know if something is missing."),
    *("I will be in the office until five.", "Many thanks in advance."),
)
SUBJECTS: Final = ("Question about {topic}", "Update on {topic}", "Draft of {topic}", "Next steps for {topic}")

EVENTS: Final = (
    *("Budget review", "Design critique", "Hiring interview", "Roadmap planning", "One-on-one", "Release check"),
    *(
        "Customer call preparation",
        "Incident follow-up",
        "Sprint planning",
        "Contract walk-through",
        "Team retrospective",
    ),
    *("Marketing sync", "Data review", "Coffee chat", "Training session", "Workshop on pricing", "Quarterly goals"),
)
TASK_VERBS: Final = (
    "Rework",
    "Document",
    "Test",
    "Speed up",
    "Fix",
    "Extend",
    "Simplify",
    "Review",
    "Replace",
    "Measure",
)
TASK_THINGS: Final = {
    "Back end": (
        *("the login service", "the invoice export", "the search index", "the nightly backup", "the payment webhook"),
        *("the rate limiter", "the audit log", "the image store", "the mail queue", "the permissions model"),
    ),
    "Front end": (
        *("the checkout form", "the settings page", "the date picker", "the mobile menu", "the error page"),
        *("the order table", "the keyboard shortcuts", "the loading states", "the language switch", "the file upload"),
    ),
    "Design": (
        *("the colour palette", "the icon set", "the empty states", "the onboarding screens", "the email templates"),
        *("the landing page", "the chart styles", "the print layout", "the dark theme", "the style guide"),
    ),
}
NOTES: Final = (
    *(
        "Met at the trade fair.",
        "Prefers phone calls.",
        "Asked for a quote.",
        "Wants a demo.",
        "Renews in June.",
    ),
    *("Compares us with another supplier.", "Came through a partner.", ""),
)
